"""The gate that a round's model must pass: better on the user's held-out samples, and without harm elsewhere.

McNemar's test is in `tuner.runtime.service.mcnemar`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.runtime.service.mcnemar import harm

#: Of two models of equal accuracy, one is better if its answers cost at most this part of the other's.
CHEAPER = 0.99
Right = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a new model must show to be accepted.

    Attributes:
        confidence: Confidence at which McNemar's test must find no harm, above 0.5 and below 1.
        global_drop: Largest drop of accuracy on the bundle's global check samples: 0.01 is a point.
        least: Least number of held-out samples.
    """

    confidence: float = 0.95
    global_drop: float = 0.01
    least: int = 10


@dataclass(frozen=True, slots=True, eq=False)
class HoldoutComparison:
    """Answers of the old and the new model to the same held-out samples of the user.

    Attributes:
        old, new: Whether the model's answer is right, bool [n].
        known: Whether the old model has the sample's label, bool [n].
        labelled: Whether right means the sample's label; else it means agreement with the old model's last exit.
        old_cost, new_cost: Mean share of the whole model's FLOPs that an answer took.
    """

    old: Right
    new: Right
    known: Right
    labelled: bool
    old_cost: float = 1.0
    new_cost: float = 1.0


@dataclass(frozen=True, slots=True)
class GlobalCheck:
    """Accuracy on the bundle's global check samples before and after training, in [0, 1]."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the new model is accepted, and the reason in one line."""

    accepted: bool
    reason: str


def refused(reason: str) -> Verdict:
    """Return the verdict that keeps the old model."""
    return Verdict(accepted=False, reason=reason)


def judge(comparison: HoldoutComparison, check: GlobalCheck | None, rules: Rules) -> Verdict:
    """Decide; ties keep the old model, unless the new model's answers leave earlier.

    As more samples must be right, McNemar's test can find no harm on all samples together. It decides on the samples
    whose label the old model knew: a gain on new classes must not come at their expense.

    Args:
        comparison: Both models' answers.
        check: None where the bundle has no global check samples; the reason then says so.
        rules: What the new model must show.
    """
    summary = _summary(comparison, check)
    count = len(comparison.old)
    if count < rules.least:
        return refused(f"{count} held-out samples are too few to compare the models, the least is {rules.least}")
    before, after = int(comparison.old.sum()), int(comparison.new.sum())
    if after < before:
        return refused(f"the new model is right on fewer samples: {summary}")
    if after == before and comparison.new_cost > CHEAPER * comparison.old_cost:
        return refused(f"a tie keeps the old model: {summary}")
    for name, among in (("all samples", np.ones(count, bool)), ("classes it knew", comparison.known)):
        lost = int((comparison.old & ~comparison.new & among).sum())
        won = int((comparison.new & ~comparison.old & among).sum())
        p_value = harm(lost, won)
        if p_value <= 1 - rules.confidence:
            return refused(f"harm on {name}: {lost} newly wrong, {won} newly right, p = {p_value:.2g}; {summary}")
    if check is not None and check.before - check.after > rules.global_drop:
        return refused(f"global accuracy falls by more than {100 * rules.global_drop:g} points: {summary}")
    return Verdict(accepted=True, reason=summary)


def _summary(comparison: HoldoutComparison, check: GlobalCheck | None) -> str:
    if comparison.old_cost == comparison.new_cost:
        cost = ""
    else:
        cost = f", at {100 * comparison.old_cost:.0f} % and {100 * comparison.new_cost:.0f} % of the FLOPs"
    meaning = "right" if comparison.labelled else "in agreement with the last exit, as there are no labels"
    own = (
        f"before {comparison.old.sum()}, after {comparison.new.sum()} of {len(comparison.old)} held-out samples "
        f"{meaning}{cost}"
    )
    if check is None:
        return f"{own}; no global check samples to compare on"
    return f"{own}; global accuracy before {100 * check.before:.1f} %, after {100 * check.after:.1f} %"
