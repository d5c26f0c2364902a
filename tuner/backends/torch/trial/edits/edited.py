"""Tail edits made by the plugins' lowerings."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from tuner.backends.extensions import Extensions
from tuner.backends.lowering import Evolving, Lowering, LoweringError, Tail, TailBlock
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.task_loss import CROSS_ENTROPY, StepLoss
from tuner.backends.torch.trial.edits.evolving import evolving
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.errors import TrainingError, call_extension, first_line, place_of
from tuner.plan.parts import EditTraits, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.ridge.solver import realised
from tuner.runtime.train.adapters import fused_name

#: Samples of a batch that a lowering compares losses on: its backward pass must not take what a training step takes.
PROBE = 8
#: Largest difference of logits, relative to the largest, between an edited tail and the given layers it trained.
SAME_LOGITS = 1e-3
Probe = Callable[[nn.Module, int], torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class EditedTail:
    """A tail with every edit of a plan made.

    Attributes:
        tail: What trains: the result of the last edit.
        given: The blocks as the model has them, where the edits keep its weights; they share what is trained.
        evolving: Modules that change while the tail trains, by the kind of the edit that made them.
        kinds: Kinds of all edits, for messages.
    """

    tail: nn.Module
    given: nn.Module | None
    evolving: Mapping[str, tuple[Evolving, ...]]
    kinds: str = ""

    def records(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Return what a bundle records of the whole model's changes while training, by the kind of edit."""
        names = {module: name for name, module in model.named_modules()}
        return {
            kind: {name: value for module in modules for name, value in module.record(names).items()}
            for kind, modules in self.evolving.items()
        }

    def finish(self, example: torch.Tensor) -> nn.Module:
        """End the training of the tail; return what is scored, written and exported.

        Parametrisations are fused: each weight becomes what it was computed as.
        """
        before = _logits(self.tail, example)
        if self.kinds and not bool(before.isfinite().all()):
            raise LoweringError(self.kinds, "after training, its tail must give finite logits, but some are not")
        fuse(self.tail)
        if self.given is None or not self.kinds:
            return self.tail
        after = _logits(self.given, example)
        difference = float((before - after).abs().max() / before.abs().max().clamp(min=1e-6))
        if not difference <= SAME_LOGITS:
            raise LoweringError(
                self.kinds,
                f"after training, the model's own layers must compute what the edited tail does, but logits differ by "
                f"{difference:.2g}: change weights in place or by torch.nn.utils.parametrize, or give the edit "
                "EditTraits(keeps_weights=False)",
            )
        return self.given


def edited(
    model: OpenModel, plan: TrialPlan, extensions: Extensions, probe: Probe | None = None, seed: int = 0
) -> EditedTail:
    """Make every edit of the plan, in its order. Every weight of the tail trains, but for those that an edit froze.

    Lowerings may ask for losses of `probe`; of noise where it is not given.

    Raises:
        TrainingError: No plugin realises an edit.
        LoweringError: A lowering raised, or broke a rule.
    """
    given = model.tail(plan.split).requires_grad_()
    names, own = set(given.state_dict()), {id(value) for value in given.parameters()}
    tail, blocks = given, tuple(_blocks(model, plan.split))
    unedited = copy.deepcopy(given) if any(edit.traits.keeps_given for edit in plan.shape) else given
    by_kind: dict[str, tuple[Evolving, ...]] = {}
    lacking = extensions.lacking(plan)
    if lacking is not None:
        raise TrainingError(lacking)
    for number, edit in enumerate(plan.shape, start=1):
        before = evolving(tail)
        handle = _handle(tail, unedited, blocks, plan, probe or _noise(plan), seed)
        if (lowering := extensions.lowerings.get(edit.kind)) is None:
            lowering = partial(realised("torch"), solver=extensions.solvers[edit.kind])
        tail = _lowered(edit, lowering, handle)
        added = tuple(module for module in evolving(tail) if not any(module is known for known in before))
        for module in added:
            module.kind = edit.kind
        if added:
            by_kind[edit.kind] = (*by_kind.get(edit.kind, ()), *added)
        if not any(value.requires_grad for value in tail.parameters()):
            raise LoweringError(edit.kind, "some weight must train, but all are frozen: leave some as they are")
        if EditTraits.of(plan.shape[:number]).keeps_weights:
            _require_own_weights(edit.kind, tail, given, names, own)
    kinds = ", ".join(edit.kind for edit in plan.shape)
    return EditedTail(tail, given if plan.traits.keeps_weights else None, by_kind, kinds)


def fuse(module: nn.Module) -> None:
    """Put what a parametrisation makes of a weight in the weight's own place."""
    for layer in list(module.modules()):
        for name in list(getattr(layer, "parametrizations", ())):
            parametrize.remove_parametrizations(layer, name, leave_parametrized=True)


def probe_of(inputs: TailInputs, loss: StepLoss, seed: int) -> Probe:
    """Return a tail's mean loss on some of its training samples, `PROBE` at a time, chosen with a seed."""
    order = np.random.default_rng((seed, 3)).permutation(len(inputs.labels))

    def probe(tail: nn.Module, number: int) -> torch.Tensor:
        rows = np.sort(order.take(range(number * PROBE, number * PROBE + min(PROBE, len(order))), mode="wrap"))
        return loss.mean(tail.eval()(spatial(inputs.read(rows))), inputs.labels_of(rows))

    return probe


def _noise(plan: TrialPlan) -> Probe:
    """Return a tail's mean loss on noise: nothing is known of its samples where a step is only planned."""

    def probe(tail: nn.Module, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        value = torch.randn(PROBE, *plan.model.blocks[plan.split].in_shape, generator=generator)
        labels = torch.arange(PROBE) % plan.model.outputs
        return CROSS_ENTROPY.mean(tail.eval()(spatial(value)), labels)

    return probe


def _blocks(model: OpenModel, cut: int) -> Iterable[TailBlock]:
    """Yield the blocks of a tail with their layers."""
    if model.chain is None:
        layers = model.model.named_modules()
        with_weights = {name: one for name, one in layers if next(one.parameters(recurse=False), None) is not None}
        yield TailBlock(model.info.name, with_weights)
        return
    for number in range(cut, len(model.chain.blocks)):
        yield TailBlock(model.chain.blocks[number].name, model.chain.layers(number))


def _handle(
    tail: nn.Module, given: nn.Module, blocks: tuple[TailBlock, ...], plan: TrialPlan, probe: Probe, seed: int
) -> Tail:
    """Return what a lowering takes."""

    def loss(number: int = 0) -> torch.Tensor:
        return probe(tail, number)

    return Tail(tail, blocks, plan, seed, loss, lambda: copy.deepcopy(given))


def _lowered(edit: TailEdit, lowering: Lowering, handle: Tail) -> nn.Module:
    """Make one edit, and check what the lowering returned."""
    plan = handle.plan
    result: object = call_extension(LoweringError, edit.kind, lowering, handle, dict(edit.settings))
    if not isinstance(result, nn.Module):
        rule = "it must return the edited tail, a torch.nn.Module, but it returned"
        raise LoweringError(edit.kind, f"{rule} {result!r}: end it with `return tail.module`")
    shape, wanted = plan.model.blocks[plan.split].in_shape, [2, plan.model.outputs]
    try:
        outputs = _logits(result, torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)))
    except Exception as error:
        raise LoweringError(edit.kind, f"the tail it returned raises {first_line(error)}{place_of(error)}") from error
    if not isinstance(outputs, torch.Tensor) or list(outputs.shape) != wanted:
        got = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise LoweringError(edit.kind, f"its tail must give logits {wanted} for two samples, but it gives {got}")
    if not bool(outputs.isfinite().all()):
        raise LoweringError(edit.kind, "its tail must give finite logits in evaluation mode, but some are not")
    return result


def _logits(tail: nn.Module, value: torch.Tensor) -> torch.Tensor:
    tail.eval()
    with torch.no_grad():  # not in inference mode: parametrisations may keep what they compute
        outputs: torch.Tensor = tail(spatial(value))
    return outputs


def _require_own_weights(kind: str, tail: nn.Module, given: nn.Module, names: set[str], own: set[int]) -> None:
    """Refuse an edit that trains copies, or weights next to the given blocks' own.

    `names` are those of their weights and buffers before any edit, `own` the identities of their weights then.
    """
    lists = [one for one in given.modules() if isinstance(one, parametrize.ParametrizationList)]
    parametrised = [one for one in lists if own.intersection(map(id, one.parameters(recurse=False)))]
    allowed = own.union(*({id(value) for value in one.parameters()} for one in parametrised))
    strange = [name for name, value in tail.named_parameters() if value.requires_grad and id(value) not in allowed]
    strange += sorted(set(map(fused_name, given.state_dict())) ^ names)
    if strange:
        raise LoweringError(
            kind,
            f"what trains must be weights of the given layers, but {strange[0]!r} is not: change weights in place by "
            "torch.nn.utils.parametrize, or give the edit EditTraits(keeps_weights=False)",
        )
