"""A tail that starts narrow and grows between epochs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import fx, nn

from tuner.backends.torch.evolving import Training
from tuner.backends.torch.widths import (
    CONVOLUTIONS,
    NORMS,
    Width,
    WidthError,
    Widths,
    find,
    install,
    resize,
    selected,
    traced,
    weight_of,
)
from tuner_growth import Edit
from tuner_growth.control import Decision, Network, Rule, State, begun, decide
from tuner_growth.cost import FIXED, LayerCost, NetworkCost
from tuner_growth.torch.adapt import ADAPTERS, Site
from tuner_growth.torch.gates import Gates
from tuner_growth.torch.memory import training_bytes

#: A linear layer starts at this part of the start fraction (the paper's 2 % against 10 %).
LINEAR_SHARE = 0.2


class GrowingTail(nn.Module):
    """A traced tail of narrow layers, and what makes them wider.

    Args:
        tail: The full one; its layers are made narrow in place.
        edit: How it grows.
        scratch: Whether it starts from fresh weights; otherwise from the largest of the given ones.

    Attributes:
        fresh_norms: Whether the norms' statistics are fresh too.
        decisions: So far.

    Raises:
        WidthError: The tail cannot be traced, or no width of it can grow.
    """

    def __init__(self, tail: nn.Module, edit: Edit, *, scratch: bool) -> None:
        super().__init__()
        self.body: fx.GraphModule = traced(tail)
        self.fresh_norms = scratch
        self.decisions: list[Decision] = []
        self._edit = edit
        self._found = find(self.body)
        if not self._found.growable:
            said = "; ".join(f"{name}: {reason}" for name, reason in self._found.fixed) or "there is no hidden layer"
            raise WidthError(f"no width of the trained blocks can grow ({said}): train more blocks, or no growth")
        self._caps = tuple(width.size for width in self._found.growable)
        self._sizes = tuple(start_size(self.body, width, edit.start) for width in self._found.growable)
        for width, size in zip(self._found.growable, self._sizes, strict=True):
            install(self.body, selected(self.body, width, strongest(self.body, width, size)))
        if scratch:
            _refresh(self.body)
        self._givers = [[self.body.get_submodule(name) for name in width.givers] for width in self._found.growable]
        self._gates: dict[str, Gates] = {}
        self._seconds = 0.0

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return what the body does."""
        result: torch.Tensor = self.body(value)
        return result

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take over weights of any width, and the widths with them."""
        resize(self, state_dict)
        return super().load_state_dict(state_dict, strict, assign)

    @property
    def widths(self) -> dict[str, int]:
        """Every growable width, by its first module's name in the model."""
        return {width.name: len(weight_of(self.body, width.name)) for width in self._found.growable}

    def begin(self, training: Training) -> None:
        """Prepare costs and the controller's state.

        Raises:
            WidthError: It starts wider than its cap.
        """
        self._training = training
        self._generator = torch.Generator().manual_seed(training.seed)
        edit = self._edit
        self._rule = Rule(edit.controller, edit.horizon, edit.penalty, training.seed)
        self._state = begun(self._rule, self._sizes)
        cost = network_cost(self.body, self._found, training.example)
        self._cost = cost
        for name, unit, share, of in (
            ("cap", "parameters", edit.cap, cost.parameters),
            ("flops", "FLOPs", edit.flops, cost.flops),
        ):
            if of(self._sizes) > share * of(self._caps):
                begins = f"growth.start = {edit.start:g} begins with {of(self._sizes):,} {unit}"
                allows = f"growth.{name} = {share:g} allows {int(share * of(self._caps)):,}"
                raise WidthError(f"{begins}, but {allows}: lower growth.start or raise growth.{name}")
        self._forget()

    def before_update(self, loss: float) -> None:
        """Record saliencies; move and apply the RI gates."""
        self._losses.append(loss)
        if self._edit.controller == "fixed":  # nothing will ask for saliencies
            return
        started = time.perf_counter()
        if len(self._losses) == 1:
            self._weights = [[one.get_parameter("weight") for one in givers] for givers in self._givers]
        with torch.no_grad():
            for weights, batches in zip(self._weights, self._batches, strict=True):
                batches.append(channel_saliency(weights))
            self._seconds += time.perf_counter() - started
            for width, batches in zip(self._found.growable, self._batches, strict=True):
                if width.name in self._gates:
                    self._gates[width.name].before_update(batches[-1])

    def after_update(self) -> None:
        """Move the Meta gates."""
        for gates in self._gates.values():
            gates.after_update()

    def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
        """Fold the gates, let the controller decide, and grow.

        Args:
            epoch: That ended, from 1.
            room: Bytes that training may take beyond its peak so far; None for no limit.

        Returns:
            By width: what was added, its value, the width after it, the penalty; the loss before and after.
        """
        if not self._losses:  # every batch was too small for a norm
            return {}
        started = time.perf_counter()
        self._fold()
        if self._edit.controller == "fixed":
            self._forget()
            return {}
        by_channel = [torch.stack(one) for one in self._batches]  # float32 [batches, channels]
        saliency = [one.sum(dim=1).tolist() for one in by_channel]
        network = Network(self._cost, self._caps, self._fits(room))
        state, decision = decide(self._rule, self._state, epoch, saliency, self._losses, network)
        self._seconds += time.perf_counter() - started
        self._state = state
        self.decisions.append(decision)
        entry = {"controller_seconds": self._seconds, **self._log(decision)}
        if any(decision.actions):
            entry |= self._grow(decision.actions, [one.sum(dim=0) for one in by_channel])
        self._forget()
        self._seconds = 0.0
        return entry

    def grow(self, actions: Sequence[int], saliency: Sequence[torch.Tensor]) -> None:
        """Add channels to every width, from the input to the output.

        Args:
            actions: How many, one a width.
            saliency: Of every width's channels, float32 [size].
        """
        adapter = ADAPTERS[self._edit.adapter]
        for index, (width, added) in enumerate(zip(self._found.growable, actions, strict=True)):
            if not added:
                continue
            now = replace(width, size=len(weight_of(self.body, width.name)))
            site = Site(self.body, now, added, saliency[index], self._generator, self._training.loss)
            adapted = adapter(site)
            install(self.body, adapted.changes, self._training.optimiser)
            if adapted.gates:
                self._gates[width.name] = Gates(self.body, now, adapted.gates, self._training.steps)

    def state(self) -> dict[str, Any]:
        """Return the controller's state, what was decided, the generator's, and the gates as they begin."""
        return {
            "controller": asdict(self._state),
            "decisions": [asdict(one) for one in self.decisions],
            "generator": self._generator.get_state(),
            "gates": {name: (one.size, one.begun) for name, one in self._gates.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with the weights of then."""
        self._state = State.from_dict(state["controller"])
        self.decisions = [Decision(**one) for one in state["decisions"]]
        self._generator.set_state(state["generator"])
        for width in self._found.growable:
            if width.name in state["gates"]:
                size, begun_at = state["gates"][width.name]
                self._gates[width.name] = Gates(self.body, replace(width, size=size), begun_at, self._training.steps)

    def finish(self) -> tuple[str, ...]:
        """Fold the gates; return the final widths."""
        self._fold()
        said = ", ".join(
            f"{name} {size} of {cap}" for (name, size), cap in zip(self.widths.items(), self._caps, strict=True)
        )
        kept = "; ".join(f"{name}: {reason}" for name, reason in self._found.fixed)
        return (f"final widths: {said}", *([f"cannot grow: {kept}"] if kept else []))

    def _fits(self, room: int | None) -> Callable[[Sequence[int]], bool]:
        """Return whether widths keep to the caps on parameters and FLOPs, and to what memory leaves."""
        cost, edit, full = self._cost, self._edit, self._caps
        parameters, flops = edit.cap * cost.parameters(full), edit.flops * cost.flops(full)

        def capped(widths: Sequence[int]) -> bool:
            return cost.parameters(widths) <= parameters and cost.flops(widths) <= flops

        if room is None:
            return capped
        needed = training_bytes(self.body, self._found.growable, cost, self._training)
        most = needed(self._state.widths) + room
        return lambda widths: capped(widths) and needed(widths) <= most

    def _grow(self, actions: Sequence[int], saliency: Sequence[torch.Tensor]) -> dict[str, float]:
        with torch.no_grad():
            before = float(self._training.loss(self))
            self.grow(actions, saliency)
            after = float(self._training.loss(self))
        return {"loss_before_growth": before, "loss_after_growth": after}

    def _log(self, decision: Decision) -> dict[str, float]:
        entry: dict[str, float] = {}
        for index, width in enumerate(self._found.growable):
            entry |= {
                f"{width.name}.added": float(decision.actions[index]),
                f"{width.name}.value": decision.values[index],
                f"{width.name}.width": float(decision.widths[index]),
                f"{width.name}.penalty": decision.penalties[index],
            }
        return entry

    def _fold(self) -> None:
        for gates in self._gates.values():
            gates.fold()
        self._gates = {}

    def _forget(self) -> None:
        """Begin an epoch's records."""
        self._losses: list[float] = []
        self._batches: list[list[torch.Tensor]] = [[] for _ in self._found.growable]


def channel_saliency(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return Σ|∂L/∂W ⊙ W| of every channel of a width, over the weights of all layers that give it; float32 [size]."""
    parts = [(one.grad * one).abs_().sum(dim=tuple(range(1, one.ndim))) for one in weights if one.grad is not None]
    return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]


def start_size(body: nn.Module, width: Width, start: float) -> int:
    """Return a width's size at the start: its part rounded down, at least 1, and 2 where a depthwise layer keeps it.

    A depthwise convolution of one channel would be a plain one.
    """
    linear = isinstance(body.get_submodule(width.name), nn.Linear)
    part = start * LINEAR_SHARE if linear else start
    return min(width.size, max(2 if width.along else 1, int(part * width.size + 1e-9)))


def strongest(body: nn.Module, width: Width, size: int) -> list[int]:
    """Return the channels with the largest weights, summed over the layers that give them, in ascending order."""
    norms = torch.stack([weight_of(body, name).abs().flatten(1).sum(dim=1) for name in width.givers]).sum(dim=0)
    return sorted(norms.argsort(descending=True, stable=True)[:size].tolist())


def network_cost(body: nn.Module, found: Widths, example: torch.Tensor) -> NetworkCost:
    """Return the costs of a network's convolutions and linears by width; runs one sample to count positions."""
    gives = {name: index for index, width in enumerate(found.growable) for name in (*width.givers, *width.along)}
    takes = {name: index for index, width in enumerate(found.growable) for name in width.takers}
    places: dict[str, int] = {}
    weighty = [(name, one) for name, one in body.named_modules() if isinstance(one, (*CONVOLUTIONS, nn.Linear))]
    hooks = [
        one.register_forward_hook(lambda _, __, out, name=name: places.update({name: out[0, 0].numel()}))
        for name, one in weighty
    ]
    body.eval()
    with torch.no_grad():
        body(example[:1])
    for hook in hooks:
        hook.remove()
    layers = []
    for name, module in weighty:
        weight = weight_of(body, name)
        into = takes.get(name, FIXED)
        inputs = weight.shape[1] if into == FIXED else len(weight_of(body, found.growable[into].name))
        norms = found.growable[gives[name]].norms if name in gives and name == found.growable[gives[name]].name else ()
        scalars = sum(len(list(body.get_submodule(norm).parameters())) for norm in norms)
        layers.append(
            LayerCost(
                name,
                linear=isinstance(module, nn.Linear),
                out=gives.get(name, FIXED),
                into=into,
                out_width=len(weight),
                in_width=inputs,
                kernel=weight[0].numel() // inputs,
                positions=places.get(name, 1),
                per_output=scalars + (module.bias is not None),
            )
        )
    return NetworkCost(tuple(layers))


def _refresh(body: nn.Module) -> None:
    """Give every layer fresh weights: Xavier-uniform ones, biases of 0, norms as they are made."""
    for module in body.modules():
        if isinstance(module, (*CONVOLUTIONS, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, NORMS):
            module.reset_parameters()
