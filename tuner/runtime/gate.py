"""Is a round's model let in? It must be better on the user's held-out samples, and harm nothing.

McNemar's test is in `tuner.runtime.mcnemar`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.runtime.mcnemar import harm

#: Of two models that are right as often, one is better whose answers cost at most this part of the other's.
CHEAPER = 0.99
Right = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a new model has to show.

    Attributes:
        confidence: At which McNemar's test must find no harm, above 0.5 and below 1.
        global_drop: How far accuracy on the bundle's global check records may fall: 0.01 is a point.
        least: Held-out samples without which nothing is let in.
    """

    confidence: float = 0.95
    global_drop: float = 0.01
    least: int = 10


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """How the old and the new model did on the same held-out samples of the user.

    Attributes:
        old, new: bool [n]: the sample was answered rightly.
        known: bool [n]: the old model could have answered rightly, as it has the sample's label.
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
    """Accuracy on the bundle's global check records, before and after, in [0, 1]."""

    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the new model is let in, and why, in one line."""

    accepted: bool
    reason: str


def refused(reason: str) -> Verdict:
    """Return the verdict that keeps the old model."""
    return Verdict(accepted=False, reason=reason)


def judge(held: Held, check: GlobalCheck | None, rules: Rules) -> Verdict:
    """Decide; ties keep the old model. Where as many are right, a model whose answers leave earlier is no tie.

    More samples must be right, so on all of them McNemar's test can find no harm; where it bites is on those whose
    label the old model knew, which a gain on new classes must not be paid with.

    Args:
        held: Both models' answers.
        check: None where the bundle holds no global check records; the reason then says so.
        rules: What is asked for.
    """
    said = _said(held, check)
    count = len(held.old)
    if count < rules.least:
        return refused(f"{count} held-out samples are too few to judge by, the least is {rules.least}")
    before, after = int(held.old.sum()), int(held.new.sum())
    if after < before:
        return refused(f"fewer are right: {said}")
    if after == before and held.new_cost > CHEAPER * held.old_cost:
        return refused(f"a tie keeps the old model: {said}")
    for name, among in (("all samples", np.ones(count, bool)), ("classes it knew", held.known)):
        lost = int((held.old & ~held.new & among).sum())
        won = int((held.new & ~held.old & among).sum())
        value = harm(lost, won)
        if value <= 1 - rules.confidence:
            return refused(f"harm on {name}: {lost} lost, {won} won, p = {value:.2g}; {said}")
    if check is not None and check.before - check.after > rules.global_drop:
        return refused(f"global accuracy falls by more than {100 * rules.global_drop:g} points: {said}")
    return Verdict(accepted=True, reason=said)


def _said(held: Held, check: GlobalCheck | None) -> str:
    what = "right" if held.labelled else "in agreement with the last exit, as there are no labels,"
    cost = ""
    if held.old_cost != held.new_cost:
        cost = f", at {100 * held.old_cost:.0f} % then {100 * held.new_cost:.0f} % of the FLOPs"
    own = f"{held.old.sum()} then {held.new.sum()} of {len(held.old)} held-out samples {what}".removesuffix(",") + cost
    if check is None:
        return f"{own}; no global check records to compare on"
    return f"{own}; global check {100 * check.before:.1f} % then {100 * check.after:.1f} %"
