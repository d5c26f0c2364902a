"""What side heads read: the inputs of several cuts at a time, of stored features or of the model's outputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from tuner.arrays import Labels, RowNumbers
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import TrainingReader
from tuner.backends.torch.features.selection import Selection
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.trial.inputs import computed_inputs, inference_prefix, stored_inputs
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.errors import TrainingError
from tuner.plan.heads import Exit
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_bits
from tuner.training.schedule import batches_of

#: Stands among cuts for the last one at the size of the exit of a smaller input.
SMALL = -1
#: Takes row numbers and returns float32 [n, ...] by cut.
ReadCuts = Callable[[RowNumbers], dict[int, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class CutInputs:
    """What is read of some samples at several cuts, and the samples' labels.

    Attributes:
        reading: Takes cuts and returns how to read just these.
        labels: Labels of all rows.
    """

    reading: Callable[[Sequence[int]], ReadCuts]
    labels: Labels

    def batches(self, cuts: Sequence[int]) -> Iterator[tuple[RowNumbers, dict[int, torch.Tensor]]]:
        """Yield the numbers of all rows, in order, a batch at a time, and what is read of them."""
        read = self.reading(cuts)
        for rows in batches_of(np.arange(len(self.labels)), SCORE_BATCH):
            yield rows, read(rows)


def cut_of(place: Exit) -> int:
    """Return the cut whose input an exit reads, as `CutInputs` knows it."""
    return SMALL if place.size else place.block


def answering_cuts(plan: TrialPlan) -> tuple[int, ...]:
    """Return the cuts that the exits and the final head read."""
    return (*plan.answering_cuts, *((SMALL,) if plan.heads.small else ()))


def cut_inputs(
    access: Access, plan: TrialPlan, selections: Sequence[Selection], *, exact: bool, small: Access | None = None
) -> CutInputs:
    """Return how to read the plan's cuts of some selections, one after the other.

    Cuts in a tail are computed from its own input whenever they are read, by its weights at the call of `reading`.
    `exact` asks for the 16-bit records that scores come from, instead of those for training. `small` are the features
    at the size of the exit of a smaller input, where the plan has one.

    Raises:
        TrainingError: The model has no cut points.
        LookupError: The features are coded, and a cut has no scales yet.
    """
    smaller = plan.smaller
    if smaller is not None and small is not None:
        own = cut_inputs(
            access, replace(plan, heads=replace(plan.heads, exits=plan.heads.along)), selections, exact=exact
        )
        partitions = dict(small.task.partitions())
        resized = [replace(one, samples=partitions[one.partition]) for one in selections]
        return _with_small(own, cut_inputs(small, smaller, resized, exact=exact), smaller.cuts)
    if not plan.cached:
        return _computed(access, selections)
    bits = dict.fromkeys(plan.cuts, VALIDATION_BITS) if exact else feature_bits(plan)
    sources = {cut: stored_inputs(TrainingReader(access, cut, bits[cut], selections), selections) for cut in plan.cuts}

    def reading(cuts: Sequence[int]) -> ReadCuts:
        stored, inside = [cut for cut in cuts if cut in sources], [cut for cut in cuts if cut not in sources]
        part = _outputs(access, inside, plan.split) if inside else None

        def read(rows: RowNumbers) -> dict[int, torch.Tensor]:
            values = {cut: sources[cut].read(rows) for cut in stored}
            if part is not None:
                begin = values[plan.split] if plan.split in values else sources[plan.split].read(rows)
                values |= _computed_at(inside, part, begin)
            return values

        return read

    return CutInputs(reading, sources[plan.cuts[0]].labels)


def _with_small(own: CutInputs, small: CutInputs, cuts: tuple[int, ...]) -> CutInputs:
    """Return how to read what both read, the one cut of `small` as `SMALL`."""

    def reading(wanted: Sequence[int]) -> ReadCuts:
        others = [cut for cut in wanted if cut != SMALL]
        read, more = own.reading(others) if others else None, small.reading(cuts) if SMALL in wanted else None

        def both(rows: RowNumbers) -> dict[int, torch.Tensor]:
            values = {} if read is None else dict(read(rows))
            return values if more is None else {**values, SMALL: more(rows)[cuts[-1]]}

        return both

    return CutInputs(reading, own.labels)


def _computed(access: Access, selections: Sequence[Selection]) -> CutInputs:
    """Return how to read any cuts of some selections: all of them in one pass of the model."""
    pixels = computed_inputs(access.task, inference_prefix(access.loaded, 0), selections)

    def reading(cuts: Sequence[int]) -> ReadCuts:
        part = _outputs(access, cuts)
        return lambda rows: _computed_at(cuts, part, pixels.read(rows))

    return CutInputs(reading, pixels.labels)


def _outputs(access: Access, cuts: Sequence[int], begin: int | None = None) -> nn.Module:
    """Return what computes the inputs of some cuts, from the model's input or from that of another cut."""
    chain = access.loaded.chain
    if chain is None:
        raise TrainingError("a model without cut points has no place for exits: leave exits out")
    start = None if begin is None else chain.split_position(begin)
    return fast(chain.outputs([chain.split_position(cut) for cut in cuts], start))


def _computed_at(cuts: Sequence[int], part: nn.Module, value: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return what `_outputs` computes of a value, by cut."""
    with torch.inference_mode():
        outputs = part(spatial(value))
    return {cut: output.clone() for cut, output in zip(cuts, outputs, strict=True)}
