"""When samples leave at an exit, and what that costs: from logits to thresholds, from modules to seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn

from tuner.backends.scores import accuracy, macro_auc
from tuner.backends.torch.measure import chain_seconds
from tuner.backends.torch.model import Loaded
from tuner.backends.torch.prefix import fast, spatial
from tuner.errors import TaskError
from tuner.plan import TrialPlan
from tuner.planner.cost import head_flops
from tuner.runtime.calibration import (
    Answers,
    Costs,
    calibrate,
    confidences,
    expected_calibration_error,
    fitted_temperature,
    front,
    rightness,
    sweep,
)  # fmt: skip
from tuner.task import Task

Logits = npt.NDArray[np.float32]  # [exits + 1, n, outputs]; the last row is the final head's


@dataclass(frozen=True, slots=True)
class Settled:
    """What calibration decided: it travels beside the heads' weights.

    Attributes:
        kept: Indices of the plan's exits that are worth having.
        thresholds: One for each of these.
        temperature: That logits are divided by for a confidence.
        tolerance: Of the plan.
        reference: Accuracy on the calibration samples that the tolerance was measured from.
        samples: Calibration samples.
        rates: Share of them that leaves at each kept exit, and at the last.
        front: Accuracy and mean seconds on them, by global threshold, where no other threshold is better in both.
    """

    kept: tuple[int, ...]
    thresholds: tuple[float, ...]
    temperature: float
    tolerance: float
    reference: float
    samples: int
    rates: tuple[float, ...]
    front: tuple[tuple[float, float, float], ...]


def settle(
    plan: TrialPlan, outputs: Logits, truth: npt.NDArray[np.generic], prices: tuple[Costs, Costs], *, multi: bool
) -> tuple[Settled, list[str]]:
    """Choose thresholds, temperature and the exits worth keeping; return them, and a note on each exit.

    FLOPs decide, so that the choice does not depend on the moment; the front is told in seconds.

    Args:
        plan: Tolerance, and what it is measured from.
        outputs: float32 [exits + 1, n, outputs] on the calibration samples.
        truth: int64 [n], or float32 [n, outputs].
        prices: Of leaving, in seconds and in FLOPs.
        multi: Whether a sample may have several labels.
    """
    heads, right = plan.heads, rightness(outputs, truth, multi=multi)
    temperature = fitted_temperature(outputs, truth, multi=multi)
    seen = Answers(confidences(outputs, temperature, multi=multi), right)
    chance = 0.5 if multi else 1 / max(2, len(np.unique(truth)))
    found = calibrate(
        seen, prices[1], tolerance=heads.tolerance, against=heads.against, chance=chance, per_exit=heads.per_exit
    )
    points = front(sweep(seen.only(found.kept), prices[0].only(found.kept)))
    settled = Settled(
        found.kept, found.chosen.thresholds, temperature, heads.tolerance, found.reference, len(truth),
        found.chosen.rates,
        tuple((one.thresholds[0] if one.thresholds else 1.0, one.accuracy, one.mean_cost) for one in points),
    )  # fmt: skip
    plain = confidences(outputs, multi=multi)
    notes = []
    for index, place in enumerate(heads.exits):
        before, after = (expected_calibration_error(one[index], right[index]) for one in (plain, seen.confidences))
        fate = "pruned"
        if index in found.kept:
            at = found.kept.index(index)
            fate = f"threshold {found.chosen.thresholds[at]:.2f} lets {100 * found.chosen.rates[at]:.0f} % leave"
        notes.append(
            f"exit before {plan.model.blocks[place.block].name} ({place.channels} channels): accuracy "
            f"{100 * right[index].mean():.1f} % of {len(truth)} calibration samples (final head "
            f"{100 * right[-1].mean():.1f} %), calibration error {before:.3f}, {after:.3f} at temperature "
            f"{temperature:.2f}; {fate}"
        )
    return settled, notes


def costs(
    loaded: Loaded, plan: TrialPlan, heads: Sequence[nn.Module] | nn.ModuleList, sample: torch.Tensor
) -> tuple[Costs, Costs]:
    """Return what it costs to leave at each exit: seconds of one sample alone, measured now, and FLOPs."""
    if loaded.chain is None:
        raise TaskError("a model without cut points has no place for exits")
    blocks = [one.block for one in plan.heads.exits]
    edges = [loaded.chain.split_position(split) for split in (0, *blocks, plan.model.num_blocks)]
    parts = [fast(loaded.chain.part(begin, end)) for begin, end in pairwise(edges)]
    seconds = np.cumsum(chain_seconds(parts, sample))
    sides, value = [], spatial(sample)
    with torch.inference_mode():
        for part, one in zip(parts, heads, strict=False):
            value = part(value)
            sides += chain_seconds([fast(fx.symbolic_trace(one.eval()))], value)
    flops = [sum(one.flops for one in plan.model.blocks[:block]) for block in (*blocks, plan.model.num_blocks)]
    return Costs(tuple(map(float, seconds)), tuple(sides)), Costs(tuple(map(float, flops)), head_flops(plan))


def truths(task: Task, domain: str, outputs: Logits, labels: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return the labels; the final head's answers where the local samples have none: agreement is then the score."""
    if domain != "local" or task.labelled:
        return labels
    found: npt.NDArray[np.generic] = outputs[-1].argmax(axis=1)
    return (outputs[-1] > 0).astype(np.float32) if task.loss == "multi-label" else found


def score(outputs: Logits, truth: npt.NDArray[np.generic], *, multi: bool) -> float:
    """Return the accuracy; with several labels a sample the macro AUC."""
    return macro_auc(outputs, truth) if multi else accuracy(outputs, truth)
