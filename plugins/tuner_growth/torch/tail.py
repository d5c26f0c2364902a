"""A tail that starts narrow and grows between epochs."""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import fx, nn

from tuner.backends.lowering import Evolving, Training, TrainingSamples
from tuner.backends.torch.model.graph.blocks import saved_bytes
from tuner.backends.torch.model.resize import BATCH_NORMS, CONVOLUTIONS, install, resize
from tuner.planner.device import FLOAT_BYTES, state_copies
from tuner_growth.compete import WINDOW
from tuner_growth.control import ControllerState, Decision, GrowableNetwork, Rule, decide, initial_state
from tuner_growth.cost import NetworkCost
from tuner_growth.edit import Edit
from tuner_growth.periods import Periods
from tuner_growth.torch.adapt import ADAPTERS
from tuner_growth.torch.cost import network_cost
from tuner_growth.torch.gates import Gates
from tuner_growth.torch.site import Site
from tuner_growth.torch.widths import Width, WidthError, find, selected, traced, weight_of

#: Windows of batches whose saliencies are recorded in a period, where it is long enough: more cost time. On LeNet-1D
#: ten are 1.1 % of the training, five 0.7 %.
MOST_WINDOWS = 5


class GrowingTail(Evolving, nn.Module):
    """A traced tail of narrow layers, and what makes them wider.

    A state dictionary of any width can be loaded, also where the tail is inside another module: its shapes are taken
    over first.

    Args:
        tail: The full one; its layers are made narrow in place.
        edit: How it grows.
        scratch: Whether it starts from fresh weights; otherwise from the largest of the given ones.

    Attributes:
        fresh_norms: Whether the norms' statistics are fresh too.
        decisions: Decisions of the controller so far.

    Raises:
        WidthError: The tail cannot be traced, or no width of it can grow.
    """

    def __init__(self, tail: nn.Module, edit: Edit, *, scratch: bool) -> None:
        super().__init__()
        self.body: fx.GraphModule = traced(tail)
        self.fresh_norms = scratch
        self.decisions: list[Decision] = []
        self._edit = edit
        self._all_widths = find(self.body)
        self._growable = self._all_widths.growable
        if not self._growable:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._all_widths.fixed)
            raise WidthError(
                f"no width of the trained blocks can grow ({reasons or 'there is no hidden layer'}): "
                "train more blocks, or set growth.mode to none"
            )
        self._caps = tuple(width.size for width in self._growable)
        self._sizes = tuple(start_size(self.body, width, edit.start) for width in self._growable)
        for width, size in zip(self._growable, self._sizes, strict=True):
            install(self.body, selected(self.body, width, strongest(self.body, width, size)))
        if scratch:
            refresh(self.body)
        self._producers = [[self.body.get_submodule(name) for name in width.producers] for width in self._growable]
        self._gates: dict[str, Gates] = {}
        self._weights: list[list[nn.Parameter]] = []
        self._ended: int | None = None
        # unlike `load_state_dict`, a hook is also called when an outer module loads its state
        self.register_load_state_dict_pre_hook(_take_shapes)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return what the body does."""
        result: torch.Tensor = self.body(value)
        return result

    @property
    def widths(self) -> dict[str, int]:
        """Every growable width, by its first module's name in the tail that was given."""
        return {width.name: len(weight_of(self.body, width.name)) for width in self._growable}

    def record(self, names: Mapping[nn.Module, str]) -> dict[str, int]:
        """Return every growable width, by its first module's name in the whole model."""
        return {names.get(self.body.get_submodule(name), name): size for name, size in self.widths.items()}

    def begin(self, training: Training) -> None:
        """Prepare costs and the controller's state.

        Raises:
            WidthError: It starts wider than its cap.
        """
        self._training = training
        self._generator = torch.Generator().manual_seed(training.seed)
        edit = self._edit
        self._rule = Rule(edit.controller, edit.horizon, edit.penalty, training.seed)
        self._periods = Periods.of(training.recipe.epochs, training.steps)
        self._state = initial_state(self._rule, self._sizes)
        self._cost = cost = network_cost(self.body, self._all_widths, training.example)
        for name, unit, share, of in (
            ("cap", "parameters", edit.cap, cost.parameters),
            ("flops", "FLOPs", edit.flops, cost.flops),
        ):
            if edit.start > share and of(self._sizes) > share * of(self._caps):  # the narrowest tail stays as it is
                begins = f"growth.start = {edit.start:g} begins with {of(self._sizes):,} {unit}"
                allows = f"growth.{name} = {share:g} allows {int(share * of(self._caps)):,}"
                raise WidthError(f"{begins}, but {allows}: lower growth.start or raise growth.{name}")
        self._step, self._inside, self._ended = 0, False, None
        self._logged: dict[str, float] = {}
        self._clear_records()
        self._settle(0)

    def before_update(self, loss: float) -> None:
        """Record the loss, and saliencies in some windows of batches."""
        window, first = divmod(self._batch, WINDOW)
        self._batch += 1
        self._step += 1
        if self._settled or window % self._stride:
            return
        started = time.perf_counter()
        self._losses.append(loss)
        if not first or not self._weights:
            self._weights = [[module.get_parameter("weight") for module in modules] for modules in self._producers]
        with torch.no_grad():
            for weights, batches in zip(self._weights, self._saliencies, strict=True):
                batches.append(channel_saliency(weights))
        self._seconds += time.perf_counter() - started

    def after_update(self) -> None:
        """Move the gates; at the end of a period inside an epoch, decide and grow."""
        for gates in self._gates.values():
            gates.after_update()
        if self._inside and not self._settled and self._periods.end_inside(self._step):
            self._decide(None)

    def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
        """At the end of a period, let the controller decide, and grow.

        Where memory is limited, no period ends inside an epoch: how much is left is known between epochs alone.

        Args:
            epoch: Number of the finished epoch, from 1.
            room: Bytes that training may take beyond its peak so far; None for no limit.

        Returns:
            Of the epoch, by width: channels added, and of its last decision their value, the width after it, and the
            penalty; the loss before and after the last growth.
        """
        self._step, self._inside = 0, room is None
        if not self._settled and self._periods.end_with(epoch):
            self._decide(room)
        self._settle(epoch)
        logged, self._logged = self._logged, {}
        return logged

    def _decide(self, room: int | None) -> None:
        """Let the controller decide, grow, and log it; see `after_epoch`."""
        if not self._losses:  # every batch was too small for a norm
            return
        started = time.perf_counter()
        by_channel = [torch.stack(batches) for batches in self._saliencies]  # float32 [batches, channels]
        saliency = [batches.sum(dim=1).tolist() for batches in by_channel]
        network = GrowableNetwork(self._cost, self._caps, self._fits(room))
        state, decision = decide(self._rule, self._state, len(self.decisions) + 1, saliency, self._losses, network)
        self._seconds += time.perf_counter() - started
        self._state = state
        self.decisions.append(decision)
        self._seconds += self._logged.get("controller_seconds", 0.0)
        self._logged |= {"controller_seconds": self._seconds, **self._log(decision)}
        if any(decision.actions):
            self._logged |= self._grow(decision.actions, [batches.sum(dim=0) for batches in by_channel])
        self._settled = self._state.settled
        self._clear_records()

    def grow(self, actions: Sequence[int], saliency: Sequence[torch.Tensor]) -> None:
        """Add channels to every width, from the input to the output.

        Args:
            actions: Channels to add, one number a width.
            saliency: Saliency of every width's channels, float32 [size].
        """
        adapter = ADAPTERS[self._edit.adapter]
        for index, (width, added) in enumerate(zip(self._growable, actions, strict=True)):
            if not added:
                continue
            current = replace(width, size=len(weight_of(self.body, width.name)))
            site = Site(self.body, current, added, saliency[index], self._generator, self._training.loss)
            adapted = adapter(site)
            install(self.body, adapted.changes, self._training.optimiser)
            if adapted.scales:
                steps = self._periods.length(whole=not self._inside)
                self._gates[width.name] = Gates(self.body, current.size, adapted.scales, steps)

    def state(self) -> dict[str, Any]:
        """Return the state of the controller, the generator, the gates and the records, and the decisions."""
        return {
            "controller": asdict(self._state),
            "decisions": [asdict(decision) for decision in self.decisions],
            "generator": self._generator.get_state(),
            "gates": {name: gates.state() for name, gates in self._gates.items()},
            "inside": self._inside,
            "ended": self._ended,
            "batch": self._batch,
            "losses": self._losses,
            "saliencies": self._saliencies,
            "seconds": self._seconds,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; the weights of that time are loaded already."""
        self._state = ControllerState.from_dict(state["controller"])
        self.decisions = [Decision(**decision) for decision in state["decisions"]]
        self._generator.set_state(state["generator"])
        self._gates = {name: Gates(self.body, **gates) for name, gates in state["gates"].items()}
        self._batch, self._seconds = state["batch"], state["seconds"]
        self._losses[:] = state["losses"]
        self._saliencies[:] = state["saliencies"]
        self._inside, self._ended = state["inside"], state["ended"]
        self._stride = self._windows_apart()
        self._settle(0)

    def finish(self, samples: TrainingSamples) -> tuple[str, ...]:  # noqa: ARG002 - the widths are what they are
        """Return the final widths, and the widths that cannot grow."""
        sizes = zip(self.widths.items(), self._caps, strict=True)
        final = ", ".join(f"{name} {size} of {cap}" for (name, size), cap in sizes)
        fixed = "; ".join(f"{name}: {reason}" for name, reason in self._all_widths.fixed)
        return (f"final widths: {final}", *([f"cannot grow: {fixed}"] if fixed else []))

    def _fits(self, room: int | None) -> Callable[[Sequence[int]], bool]:
        """Return whether widths obey the caps on parameters and FLOPs, and fit into the memory that is left."""
        cost, edit, full = self._cost, self._edit, self._caps
        parameters, flops = edit.cap * cost.parameters(full), edit.flops * cost.flops(full)

        def capped(widths: Sequence[int]) -> bool:
            return cost.parameters(widths) <= parameters and cost.flops(widths) <= flops

        if room is None:
            return capped
        needed = training_bytes(self.body, self._growable, cost, self._training)
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
        for index, width in enumerate(self._growable):
            entry |= {
                f"{width.name}.added": self._logged.get(f"{width.name}.added", 0.0) + decision.actions[index],
                f"{width.name}.value": decision.values[index],
                f"{width.name}.width": float(decision.widths[index]),
                f"{width.name}.penalty": decision.penalties[index],
            }
        return entry

    def _settle(self, epoch: int) -> None:
        """After an epoch: where no growth may follow, let a falling rate fall from there on."""
        growing = self._periods.growing
        if self._ended is None and (self._state.settled or epoch >= growing or self._edit.controller == "fixed"):
            self._ended = epoch
        self._settled = self._ended is not None
        self.constant_until = (growing if self._ended is None else self._ended) / self._periods.epochs

    def _windows_apart(self) -> int:
        """Return the number of windows of batches of which one is recorded."""
        return max(1, self._periods.length(whole=not self._inside) // (WINDOW * MOST_WINDOWS))

    def _clear_records(self) -> None:
        """Start a period without losses and saliencies."""
        self._batch, self._seconds, self._weights = 0, 0.0, []
        self._stride = self._windows_apart()
        self._losses: list[float] = []
        self._saliencies: list[list[torch.Tensor]] = [[] for _ in self._growable]


def channel_saliency(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return Σ|∂L/∂W ⊙ W| of every channel of a width, over the weights of all its producers; float32 [size]."""
    parts = [
        (weight.grad * weight).abs_().sum(dim=tuple(range(1, weight.ndim)))
        for weight in weights
        if weight.grad is not None
    ]
    return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]


def _take_shapes(tail: nn.Module, state: Mapping[str, Any], prefix: str, *_: object) -> None:
    """Give a tail the shapes of the weights that are about to be loaded into it, by their names after a prefix."""
    resize(tail, {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)})


#: Memory of backward relative to what forward keeps for it: derivatives come on top.
BACKWARD = 1.5


def training_bytes(
    body: nn.Module, widths: Sequence[Width], cost: NetworkCost, training: Training
) -> Callable[[Sequence[int]], int]:
    """Return the bytes of a step as a function of the widths, without what does not depend on them.

    Weights count with their gradients and the optimiser's state. What forward keeps for backward is a sum of maps, each
    as wide as one group or of a fixed width: its bytes are linear in the widths, and one more channel of each group
    gives the slope.

    Args:
        body: Network at its current widths; not changed.
        widths: Its growable widths.
        cost: Its parameters by width.
        training: Its recipe and an example.
    """
    sizes = [len(weight_of(body, width.name)) for width in widths]
    base = _kept(body, training.example)
    slopes = []  # bytes of one more channel of each width
    for width, size in zip(widths, sizes, strict=True):
        wider = copy.deepcopy(body)
        install(wider, selected(wider, replace(width, size=size), [*range(size), 0]))
        slopes.append(_kept(wider, training.example) - base)
    copies = 1 + state_copies(training.recipe.optimiser)

    def needed(wanted: Sequence[int]) -> int:
        kept = base + sum(slope * (to - size) for slope, to, size in zip(slopes, wanted, sizes, strict=True))
        return math.ceil(FLOAT_BYTES * copies * cost.parameters(wanted) + BACKWARD * training.recipe.part_size * kept)

    return needed


def _kept(body: nn.Module, example: torch.Tensor) -> int:
    """Return the bytes that one sample's forward pass keeps."""
    return saved_bytes(copy.deepcopy(body).eval(), example[:1])


#: A linear layer starts at this part of the start fraction (2 % instead of 10 % in the paper).
LINEAR_SHARE = 0.2


def start_size(body: nn.Module, width: Width, start: float) -> int:
    """Return a width's size at the start: its part rounded down, at least 1, and 2 where a depthwise layer shares it.

    A depthwise convolution of one channel would be a plain one.
    """
    linear = isinstance(body.get_submodule(width.name), nn.Linear)
    part = start * LINEAR_SHARE if linear else start
    return min(width.size, max(2 if width.depthwise else 1, int(part * width.size + 1e-9)))


def strongest(body: nn.Module, width: Width, size: int) -> list[int]:
    """Return the channels with the largest weights, summed over the layers that produce them, in ascending order."""
    sums = [weight_of(body, name).abs().flatten(1).sum(dim=1) for name in width.producers]
    strength = torch.stack(sums).sum(dim=0)
    return sorted(strength.argsort(descending=True, stable=True)[:size].tolist())


def refresh(body: nn.Module) -> None:
    """Give every layer fresh weights: Xavier-uniform ones, biases of 0, norms as they are made.

    Depthwise convolutions get He-uniform ones. Xavier's fan counts all of their channels, but a kernel reads one: from
    [3-6-12-25], MobileNet-1D's three would keep 0.50, 0.29 and 0.15 of the variance. He's weights everywhere made a
    LeNet on digits learn slower in five of five seeds.
    """
    for module in body.modules():
        if isinstance(module, (*CONVOLUTIONS, nn.Linear)):
            if getattr(module, "groups", 1) > 1:
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, BATCH_NORMS):
            module.reset_parameters()
