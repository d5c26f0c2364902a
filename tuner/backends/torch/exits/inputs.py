"""What a trial of side heads reads, resolved from its plan once: the inputs of several cuts at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tuner.arrays import Labels, RowNumbers
from tuner.backends.torch.features.access import VALIDATION_BITS, Access
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import (
    Selection,
    calibration_selection,
    validation_selections,
)
from tuner.backends.torch.model.layout import fast, spatial
from tuner.backends.torch.trial.inputs import TailInputs, computed_inputs, inference_prefix, stored_inputs
from tuner.errors import TrainingError
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import feature_bits

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


@dataclass(frozen=True, slots=True)
class ExitInputs:
    """What a trial of side heads reads; for a tail's, see `tuner.backends.torch.trial.inputs.TrialInputs`.

    Attributes:
        cuts: Block numbers that are read, ascending; the last is the final head's.
        bits: Width of the stored training records by cut; empty where the prefix runs in every epoch.
        train: What an epoch trains on.
        calibration: What thresholds are set on: samples that are withheld from training, or all local ones.
        validation: What scores are taken on, by domain: ``local``, and ``global`` where the task has one.
    """

    cuts: tuple[int, ...]
    bits: Mapping[int, int]
    train: CutInputs
    calibration: CutInputs
    validation: Mapping[str, CutInputs]

    @classmethod
    def resolve(cls, access: Access, plan: TrialPlan, training: Sequence[Selection]) -> "ExitInputs":
        """Return what a plan's heads read: stored features where the plan keeps them, else the model's outputs.

        Args:
            access: The task's features.
            plan: Plan with exits.
            training: What an epoch trains on.

        Raises:
            TrainingError: The model has no cut points.
            LookupError: The features are coded, and a cut has no scales yet.
        """
        task = access.task
        scored = validation_selections(task, plan.data)
        return cls(
            cuts=plan.cuts,
            bits=feature_bits(plan) if plan.cached else {},
            train=cut_inputs(access, plan, training, exact=False),
            calibration=cut_inputs(access, plan, [calibration_selection(task, plan)], exact=True),
            validation={selection.domain: cut_inputs(access, plan, [selection], exact=True) for selection in scored},
        )


def cut_inputs(access: Access, plan: TrialPlan, selections: Sequence[Selection], *, exact: bool) -> CutInputs:
    """Return how to read the plan's cuts of some selections, one after the other.

    Args:
        access: The task's features.
        plan: Whether they are stored, and at which width.
        selections: The samples.
        exact: Whether the 16-bit records that scores come from are read, instead of those for training.

    Raises:
        TrainingError: The model has no cut points.
        LookupError: The features are coded, and a cut has no scales yet.
    """
    if not plan.cached:
        return _computed(access, selections)
    bits = dict.fromkeys(plan.cuts, VALIDATION_BITS) if exact else feature_bits(plan)
    sources: dict[int, TailInputs] = {
        cut: stored_inputs(Reader(access, cut, bits[cut], selections), selections) for cut in plan.cuts
    }

    def reading(cuts: Sequence[int]) -> ReadCuts:
        return lambda rows: {cut: sources[cut].read(rows) for cut in cuts}

    return CutInputs(reading, sources[plan.cuts[0]].labels)


def _computed(access: Access, selections: Sequence[Selection]) -> CutInputs:
    """Return how to read any cuts of some selections: all of them in one pass of the model."""
    chain = access.loaded.chain
    if chain is None:
        raise TrainingError("a model without cut points has no place for exits: leave exits out")
    pixels = computed_inputs(access.task, inference_prefix(access.loaded, 0), selections)

    def reading(cuts: Sequence[int]) -> ReadCuts:
        part = fast(chain.outputs([chain.split_position(cut) for cut in cuts]))

        def read(rows: RowNumbers) -> dict[int, torch.Tensor]:
            with torch.inference_mode():
                outputs = part(spatial(pixels.read(rows)))
            return {cut: value.clone() for cut, value in zip(cuts, outputs, strict=True)}

        return read

    return CutInputs(reading, pixels.labels)
