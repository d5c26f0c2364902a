"""The gate that a round's model must pass: better on the user's new samples, and without certain harm elsewhere.

Its tests are in `tuner.runtime.infer.mcnemar`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from tuner.arrays import Flags
from tuner.bundle.table import Within
from tuner.runtime.infer.mcnemar import harm, least_drop

#: Of two models of equal accuracy, one is better if its answers cost at most this part of the other's.
CHEAPER = 0.99


@dataclass(frozen=True, slots=True)
class Rules:
    """What a new model must show to be accepted.

    Attributes:
        confidence: Confidence of the tests, above 0.5 and below 1: at which McNemar's must find no harm on the user's
            samples, and at which a loss of global accuracy counts.
        global_drop: Largest loss of accuracy on the bundle's global check samples, and on the user's earlier samples:
            0.01 is a point.
        least: Least number of samples that judge.
        seconds: Time after which a round trains no further models to judge by.
    """

    confidence: float = 0.95
    global_drop: float = 0.01
    least: int = 10
    seconds: float = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Answers of the old and the new model to samples of the user that neither was trained on.

    Attributes:
        old, new: Whether the model's answer is right, bool [n].
        known: Whether the old model has the sample's label, bool [n].
        labelled: Whether right means the sample's label; else it means agreement with the old model's last exit.
        old_cost, new_cost: Mean share of the whole model's FLOPs that an answer took.
        models: Number of models whose answers are in `new`: each was trained without the samples that it answered.
        right: What counts as right, for the reason.
        adds: Whether the new model is solved from all samples of the old one and more: then a tie accepts it.
    """

    old: Flags
    new: Flags
    known: Flags
    labelled: bool
    old_cost: float = 1.0
    new_cost: float = 1.0
    models: int = 1
    right: str = "right"
    adds: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """Whether answers to samples that the bundle brings along are right, bool [n]; n is at least 1.

    Attributes:
        old, new: Those of the model in use, and of the new one.
        name: What the share of right answers is called in the reason.
        exported: Those of the bundle as it was exported, to its global check samples. None of the user's earlier
            samples, which change from round to round.
    """

    old: Flags
    new: Flags
    name: str = "global accuracy"
    exported: Flags | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measured values that a verdict rests on.

    Attributes:
        samples: Number of the user's samples that judged.
        models: Number of models that were trained to be judged by them.
        before, after: Numbers of these samples that the old and the new model answer right.
        global_before, global_after: Accuracy on the global check samples, in [0, 1]; None where it was not measured.
        least_loss, least_gain: Loss and gain of this accuracy that are certain at the rules' confidence; at most zero
            where none is.
        earlier_before, earlier_after: Accuracy on the user's earlier samples, likewise.
    """

    samples: int
    models: int
    before: int
    after: int
    global_before: Annotated[float | None, Within(0, 1)] = None
    global_after: Annotated[float | None, Within(0, 1)] = None
    least_loss: Annotated[float | None, Within(-1, 1)] = None
    least_gain: Annotated[float | None, Within(-1, 1)] = None
    earlier_before: Annotated[float | None, Within(0, 1)] = None
    earlier_after: Annotated[float | None, Within(0, 1)] = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a new model is accepted.

    Attributes:
        accepted: Whether it is.
        reason: Why, in a sentence.
        evidence: Measured values that it rests on; None where nothing was measured.
        is_open: Whether the new samples neither show that the model is better, nor that it does harm.
    """

    accepted: bool
    reason: str
    evidence: Evidence | None = None
    is_open: bool = False


def refused(reason: str, evidence: Evidence | None = None, *, is_open: bool = False) -> Verdict:
    """Return the verdict that keeps the old model."""
    return Verdict(accepted=False, reason=reason, evidence=evidence, is_open=is_open)


def judge_samples(comparison: Comparison, rules: Rules) -> Verdict:
    """Decide by the user's own samples; ties keep the old model, unless the new one's answers leave earlier.

    So they do not where the new model only adds samples to the sums that the old one was solved from: it has nothing to
    lose by them, if any is right.

    As more samples must be right, McNemar's test can find no harm on all samples together. It decides on the samples
    whose label the old model knew: a gain on new classes must not come at their expense. A few samples often leave it
    open which model is better; `judge_checks` then decides.
    """
    count, before, after = len(comparison.old), int(comparison.old.sum()), int(comparison.new.sum())
    evidence, summary = Evidence(count, comparison.models, before, after), _summary(comparison)
    if count < rules.least:
        return refused(too_few(count, rules), evidence)
    harmed = _harm(comparison, rules)
    is_open = harmed is None and comparison.labelled and comparison.new_cost <= comparison.old_cost
    if after < before:
        return refused(f"the new model is right on fewer samples: {summary}", evidence, is_open=is_open)
    if after == before and not (comparison.adds and after) and comparison.new_cost > CHEAPER * comparison.old_cost:
        return refused(f"a tie keeps the old model: {summary}", evidence, is_open=is_open)
    if harmed is not None:
        return refused(f"{harmed}; {summary}", evidence)
    return Verdict(accepted=True, reason=summary, evidence=evidence)


def judge_checks(verdict: Verdict, checks: Sequence[Check], rules: Rules) -> Verdict:
    """Return the verdict after a look at other samples: what is forgotten, and what is gained.

    These are global check samples, and the user's earlier samples. A model that the new samples accepted is refused
    only where its loss on either is certain (Tango's test) to be above the largest that is allowed: a few hundred
    samples leave an accuracy uncertain by more than that. So that small losses do not add up from round to round, the
    global loss since the export counts too, unless the new model is no worse than the one in use. A model on which the
    new samples left it open is accepted where its global gain is certain. Where the bundle has no global check samples,
    the reason says so.
    """
    evidence, gained, allowed = verdict.evidence, "", f"{100 * rules.global_drop:g} points"
    told, forgotten = list[str](), list[str]()
    for check in checks:
        count, before, after = len(check.new), float(check.old.mean()), float(check.new.mean())
        lost, won = _changes(check.old, check.new)
        loss, gain = least_drop(lost, won, count, rules.confidence), least_drop(won, lost, count, rules.confidence)
        measured = f"{check.name} before {100 * before:.1f} %, after {100 * after:.1f} %"
        told.append(f"{measured}: {_certain(loss, gain)} is certain at {100 * rules.confidence:g} %")
        if loss > rules.global_drop:
            forgotten.append(f"{check.name} certainly falls by more than {allowed}")
        if check.exported is None:
            evidence = evidence and replace(evidence, earlier_before=before, earlier_after=after)
            continue
        evidence = evidence and replace(
            evidence, global_before=before, global_after=after, least_loss=loss, least_gain=gain
        )
        gained = check.name if gain > 0 else gained
        since_export = least_drop(*_changes(check.exported, check.new), count, rules.confidence)
        if loss <= rules.global_drop < since_export and after < before:
            forgotten.append(f"{check.name} has certainly fallen by more than {allowed} since the export")
    if all(check.exported is None for check in checks):
        told.insert(0, "no global check samples to compare on")
    summary = "; ".join([verdict.reason, *told])
    if verdict.is_open and not gained:
        return refused(summary, evidence)
    if forgotten:
        return refused(f"{' and '.join(forgotten)}: {summary}", evidence)
    if verdict.is_open:
        counts = "; ".join([verdict.reason.partition(": ")[2], *told])
        reason = f"the samples leave it open, and {gained} certainly rises: {counts}"
        return Verdict(accepted=True, reason=reason, evidence=evidence)
    return Verdict(accepted=True, reason=summary, evidence=evidence)


def earlier_checks(old: Flags, new: Flags, others: Flags, name: str) -> list[Check]:
    """Return the checks of what `DeviceTrainer.earlier_right` gives: all samples, and apart those of absent labels."""
    apart = [Check(old[others], new[others], f"{name} of labels that did not come")]
    return [*(apart if others.any() and not others.all() else []), Check(old, new, name)]


def too_few(count: int, rules: Rules) -> str:
    """Return the reason of a round without enough samples to judge by."""
    return (
        f"{count} samples that the model in use was not trained on are too few to compare the models, "
        f"the least is {rules.least}"
    )


def _harm(comparison: Comparison, rules: Rules) -> str | None:
    """Return where McNemar's test finds harm; None where it finds none."""
    for name, among in (("all samples", np.ones(len(comparison.old), bool)), ("classes it knew", comparison.known)):
        lost, won = _changes(comparison.old[among], comparison.new[among])
        p_value = harm(lost, won)
        if p_value <= 1 - rules.confidence:
            return f"harm on {name}: {lost} newly wrong, {won} newly right, p = {p_value:.2g}"
    return None


def _certain(loss: float, gain: float) -> str:
    """Return what is certain about a difference of accuracies."""
    bound, name = (loss, "loss") if loss > gain else (gain, "gain")
    return f"a {name} of {100 * bound:.1f} points or more" if bound > 0 else "neither loss nor gain"


def _changes(old: Flags, new: Flags) -> tuple[int, int]:
    """Return how many answers are newly wrong, and how many newly right."""
    return int((old & ~new).sum()), int((new & ~old).sum())


def _summary(comparison: Comparison) -> str:
    cost = f", at {100 * comparison.old_cost:.0f} % and {100 * comparison.new_cost:.0f} % of the FLOPs"
    cost = "" if comparison.old_cost == comparison.new_cost else cost
    meaning = comparison.right if comparison.labelled else "in agreement with the last exit, as there are no labels"
    models = "a model" if comparison.models == 1 else f"{comparison.models} models"
    return (
        f"before {comparison.old.sum()}, after {comparison.new.sum()} of {len(comparison.old)} samples {meaning}{cost}"
        f", judged by {models} trained without them"
    )
