"""What a trial of a tail reads: from the store, or from the samples and the frozen prefix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.augment.operations import active_operations
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.engines import prefix_engine
from tuner.backends.torch.features.int8 import int8_kind, int8_prefix
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import Selection, validation_selections
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_bits
from tuner.planner.device import FILL_BATCH
from tuner.task import Task, normalise
from tuner.task.inputs import input_kind

Change = Callable[[Floats], Floats]


def unchanged(maps: Floats) -> Floats:
    """Return the maps as they are."""
    return maps


@dataclass(frozen=True, slots=True)
class TailInputs:
    """What a tail reads of some samples.

    Attributes:
        read: Takes row numbers and returns the tail's input for them, float32 [n, ...].
        labels: Labels of all rows.
        teacher: The given model's logits of all rows, float32 [rows, outputs], where the loss reads them.
        local_rows: Number of the first rows that are local samples; all where it is None.
        weights: Weights of all rows in the loss, float32 [rows], where they differ.
    """

    read: Callable[[RowNumbers], torch.Tensor]
    labels: Labels
    teacher: Floats | None = None
    local_rows: int | None = None
    weights: Floats | None = None

    @property
    def is_local(self) -> npt.NDArray[np.bool_]:
        """Whether a row is a sample of the user's own, bool [rows]."""
        rows = len(self.labels)
        return np.arange(rows) < (rows if self.local_rows is None else self.local_rows)

    def teacher_logits(self, rows: RowNumbers) -> torch.Tensor | None:
        """Return the given model's logits of some rows, float32 [n, outputs]; None where nothing reads them."""
        return None if self.teacher is None else torch.from_numpy(self.teacher[rows])

    def weights_of(self, rows: RowNumbers) -> torch.Tensor:
        """Return the weights of some rows in the loss, float32 [n]."""
        return torch.ones(len(rows)) if self.weights is None else torch.from_numpy(self.weights[rows])

    def share(self, part: RowNumbers, batch: RowNumbers) -> float:
        """Return the share of a part in the weight of its batch."""
        if self.weights is None:
            return len(part) / len(batch)
        return float(self.weights[part].sum() / self.weights[batch].sum())


def training_inputs(
    access: Access, plan: TrialPlan, selections: Sequence[Selection], change: Change = unchanged
) -> TailInputs:
    """Return what an epoch reads.

    Args:
        access: The task's features.
        plan: What to train.
        selections: The samples.
        change: Made to the stored maps, or to the pixels where nothing is stored.

    Raises:
        LookupError: The features are coded, and the cut has no scales yet.
    """
    if not plan.cached:
        return computed_inputs(access.task, plan_prefix(access.task, access.loaded, plan), selections, change)
    return stored_inputs(Reader(access, plan.split, feature_bits(plan)[plan.split], selections), selections, change)


def validation_inputs(access: Access, plan: TrialPlan) -> dict[str, TailInputs]:
    """Return what scores are taken on, by domain: ``local``, and ``global`` where the task has one.

    Args:
        access: The task's features.
        plan: What was trained.
    """
    scored = validation_selections(access.task, plan.data)
    if not plan.cached:
        prefix = plan_prefix(access.task, access.loaded, plan)
        return {selection.domain: computed_inputs(access.task, prefix, [selection]) for selection in scored}
    exact = Reader(access, plan.split, VALIDATION_BITS, scored)
    return {selection.domain: stored_inputs(exact, [selection]) for selection in scored}


def tail_inputs(
    task: Task,
    model: OpenModel,
    cut: int,
    selections: Sequence[Selection],
    stored: Reader | None,
    change: Change = unchanged,
) -> TailInputs:
    """Return the rows of some selections, one after the other.

    Args:
        task: For preprocessing.
        model: The model.
        cut: Block number where the tail begins.
        selections: The samples.
        stored: Their features; None to run the prefix every time.
        change: Made to the stored maps, or to the pixels where nothing is stored.
    """
    if stored is not None:
        return stored_inputs(stored, selections, change)
    return computed_inputs(task, inference_prefix(model, cut), selections, change)


def stored_inputs(stored: Reader, selections: Sequence[Selection], change: Change = unchanged) -> TailInputs:
    """Return the rows of some selections, their features read from the store; see `tail_inputs`."""
    ids = [sample_id for selection in selections for sample_id in selection.ids()]

    def read(rows: RowNumbers) -> torch.Tensor:
        return torch.from_numpy(change(stored.read([ids[row] for row in rows])))

    return TailInputs(read, _labels(selections), local_rows=_local_rows(selections))


def computed_inputs(
    task: Task, prefix: nn.Module, selections: Sequence[Selection], change: Change = unchanged
) -> TailInputs:
    """Return the rows of some selections, their features computed whenever they are read; see `tail_inputs`.

    Args:
        task: For preprocessing.
        prefix: As `inference_prefix` returns it.
        selections: The samples.
        change: Made to the pixels.
    """
    places = [(selection.samples, int(index)) for selection in selections for index in selection.indices]

    def read(rows: RowNumbers) -> torch.Tensor:
        raw = np.stack([samples.load(index) for samples, index in (places[row] for row in rows)])
        pixels = torch.from_numpy(change(normalise(raw, task.input)))
        with torch.inference_mode():  # as many at a time as a filling pass takes, whatever the batch
            parts = [prefix(spatial(pixels[at : at + FILL_BATCH])) for at in range(0, len(pixels), FILL_BATCH)]
        return torch.cat(parts)  # out of inference mode, so that autograd may keep it

    return TailInputs(read, _labels(selections), local_rows=_local_rows(selections))


class QuantisedPrefix(nn.Module):
    """The blocks before a cut in int8.

    Args:
        task: Its samples give the ranges.
        model: The model.
        cut: The cut.
        threads: Threads to run with.

    Raises:
        UnsupportedError: They cannot be quantised.
    """

    def __init__(self, task: Task, model: OpenModel, cut: int, threads: int) -> None:
        super().__init__()
        int8_prefix(task, model)
        self._engine = prefix_engine(model, [cut], int8_kind(task, model), threads)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the features, float32 [n, ...]."""
        return torch.from_numpy(self._engine(np.ascontiguousarray(batch.numpy()))[0])


def plan_prefix(task: Task, model: OpenModel, plan: TrialPlan) -> nn.Module:
    """Return the frozen blocks before a plan's last cut for inference, in the plan's precision."""
    if plan.runtime.precision == "int8":
        return QuantisedPrefix(task, model, plan.cuts[-1], plan.runtime.threads)
    return inference_prefix(model, plan.cuts[-1])


def inference_prefix(model: OpenModel, cut: int) -> nn.Module:
    """Return a copy of the blocks before a cut for inference; of none of them the identity."""
    return fast(model.chain.prefix(cut)) if model.chain is not None and cut > 0 else nn.Identity()


def augmenting(task: Task, plan: TrialPlan, seed: int | np.random.Generator) -> Change:
    """Return the plan's random changes, drawn from the trial's own generator or from a given one."""
    if not plan.cache.augment:
        return unchanged
    generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng((seed, 1))
    operations, strength = active_operations(plan.task.augment, cached=plan.cached), plan.cache.augment
    augment = input_kind(task.input.kind).augment
    return lambda maps: augment(maps, generator, operations, strength)


def _local_rows(selections: Sequence[Selection]) -> int:
    return sum(len(selection) for selection in selections if selection.domain == "local")


def _labels(selections: Sequence[Selection]) -> Labels:
    return np.concatenate([selection.labels() for selection in selections])
