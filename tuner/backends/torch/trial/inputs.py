"""What a trial of a tail reads: from the store, or from the samples and the frozen prefix."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.augment.operations import of_inputs
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.engines import prefix_engine
from tuner.backends.torch.features.int8 import int8_kind, int8_prefix
from tuner.backends.torch.features.reader import Reader, TrainingReader
from tuner.backends.torch.features.selection import Selection, validation_selections
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.errors import StoreError
from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import feature_bits, feature_records
from tuner.planner.device import FILL_BATCH
from tuner.task import Task, normalise
from tuner.task.inputs import input_kind

Change = Callable[[Floats], Floats]
#: The blocks before a cut, for inference.
Blocks = Callable[[torch.Tensor], torch.Tensor]


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

    def labels_of(self, rows: RowNumbers) -> torch.Tensor:
        """Return the labels of some rows."""
        return torch.from_numpy(np.ascontiguousarray(self.labels[rows]))

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

    Raises:
        LookupError: The features are coded, and the cut has no scales yet.
    """
    if not plan.cached:
        return computed_inputs(access.task, plan_prefix(access.task, access.loaded, plan), selections, change)
    stored = TrainingReader(access, plan.split, feature_bits(plan)[plan.split], selections)
    return stored_inputs(stored, selections, change)


def validation_inputs(access: Access, plan: TrialPlan) -> dict[str, TailInputs]:
    """Return what scores are taken on, by domain: ``local``, and ``global`` where the task has one."""
    scored = validation_selections(access.task, plan.data)
    if not plan.cached:
        prefix = plan_prefix(access.task, access.loaded, plan)
        return {selection.domain: computed_inputs(access.task, prefix, [selection]) for selection in scored}
    exact = Reader(access, plan.split, VALIDATION_BITS, scored)
    return {selection.domain: stored_inputs(exact, [selection]) for selection in scored}


def kept_inputs(access: Access, plan: TrialPlan, selection: Selection) -> TailInputs | None:
    """Return a selection's rows at the plan's last cut, in 8 bits or more; None where the store lacks any of them."""
    cut = plan.cuts[-1]
    bits = VALIDATION_BITS if selection.partition.endswith(".val") else dict(feature_records(plan))[cut]
    with suppress(LookupError, OSError, StoreError):  # an export can do without
        kept = access.folder(cut, bits).exists() and not access.file(cut, bits).missing(selection.ids())
        return stored_inputs(Reader(access, cut, bits, [selection]), [selection]) if kept else None
    return None


def stored_inputs(
    stored: Reader | TrainingReader, selections: Sequence[Selection], change: Change = unchanged
) -> TailInputs:
    """Return the rows of some selections, one after the other, their features read from the store and changed."""
    ids = [sample_id for selection in selections for sample_id in selection.ids()]
    return _inputs(selections, lambda rows: torch.from_numpy(change(stored.read([ids[row] for row in rows]))))


def computed_inputs(
    task: Task, prefix: Blocks, selections: Sequence[Selection], change: Change = unchanged
) -> TailInputs:
    """Return the rows of some selections, one after the other, their features computed whenever they are read.

    The change is made to the pixels; `inference_prefix` returns a prefix.
    """
    places = [(selection.samples, int(index)) for selection in selections for index in selection.indices]

    def read(rows: RowNumbers) -> torch.Tensor:
        raw = np.stack([samples.load(index) for samples, index in (places[row] for row in rows)])
        pixels = torch.from_numpy(change(normalise(raw, task.input)))
        with torch.inference_mode():  # as many at a time as a filling pass takes, whatever the batch
            parts = [prefix(spatial(pixels[at : at + FILL_BATCH])) for at in range(0, len(pixels), FILL_BATCH)]
        return torch.cat(parts)  # out of inference mode, so that autograd may keep it

    return _inputs(selections, read)


def _inputs(selections: Sequence[Selection], read: Callable[[RowNumbers], torch.Tensor]) -> TailInputs:
    labels = np.concatenate([selection.labels() for selection in selections])
    local_rows = sum(len(selection) for selection in selections if selection.domain == "local")
    return TailInputs(read, labels, local_rows=local_rows)


def plan_prefix(task: Task, model: OpenModel, plan: TrialPlan) -> Blocks:
    """Return the frozen blocks before a plan's last cut for inference, in the plan's precision.

    Raises:
        UnsupportedError: They cannot be quantised.
    """
    cut = plan.cuts[-1]
    if plan.runtime.precision != "int8":
        return inference_prefix(model, cut)
    int8_prefix(task, model)
    engine = prefix_engine(model, [cut], int8_kind(task, model), plan.runtime.threads)
    return lambda batch: torch.from_numpy(engine(np.ascontiguousarray(batch.numpy()))[0])


def inference_prefix(model: OpenModel, cut: int) -> nn.Module:
    """Return a copy of the blocks before a cut for inference; of none of them the identity."""
    return fast(model.chain.prefix(cut)) if model.chain is not None and cut > 0 else nn.Identity()


def augmenting(task: Task, plan: TrialPlan, generator: np.random.Generator) -> Change:
    """Return the plan's random changes."""
    if not plan.cache.augment:
        return unchanged
    operations = plan.operations if plan.cached else of_inputs(plan.operations)
    strength = plan.cache.augment
    augment = input_kind(task.input.kind).augment
    return lambda maps: augment(maps, generator, operations, strength)
