"""The gate: which models it accepts, the reasons it gives, and the evidence it records."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.arrays import Flags
from tuner.runtime.train.gate import (
    Check,
    Comparison,
    Evidence,
    Rules,
    Verdict,
    judge_checks,
    judge_samples,
)

RULES = Rules()
EVIDENCE = Evidence(samples=25, models=5, before=20, after=25)
BETTER = Verdict(accepted=True, reason="before 20, after 25", evidence=EVIDENCE)


def held(
    kept: int, lost: int, won: int, neither: int = 0, *, new_classes: int = 0, labelled: bool = True
) -> Comparison:
    """Return answers by how many samples both, only the old, only the new, and neither had right.

    The last `new_classes` of those won have labels that the old model lacked.
    """
    old = np.repeat([True, True, False, False], [kept, lost, won, neither])
    new = np.repeat([True, False, True, False], [kept, lost, won, neither])
    known = np.ones(len(old), bool)
    known[kept + lost + won - new_classes : kept + lost + won] = False
    return Comparison(old, new, known, labelled, models=5)


def check(lost: int, won: int, count: int = 500, exported_lost: int | None = None) -> Check:
    """Return answers to check samples, of which the new model has some newly wrong and some newly right.

    Args:
        lost, won: How many, against the model in use.
        count: How many there are.
        exported_lost: How many the exported bundle has right that the new model has wrong; `lost` by default.
    """
    new: Flags = np.arange(count) >= count // 2
    old, exported = new.copy(), new.copy()
    old[:lost], old[count // 2 : count // 2 + won] = True, False
    exported[: lost if exported_lost is None else exported_lost] = True
    exported[count // 2 : count // 2 + won] = False
    return Check(old, new, exported=exported)


@pytest.mark.parametrize(
    ("answers", "accepted", "says"),
    [
        (held(20, 0, 5), True, "before 20, after 25 of 25"),
        (held(20, 3, 5), True, "before 23, after 25 of 28"),
        (held(20, 5, 3), False, "right on fewer samples"),
        (held(20, 4, 4), False, "a tie keeps the old"),
        (held(25, 0, 0), False, "a tie keeps the old"),
        (held(5, 0, 4), False, "9 samples that the model in use was not trained on are too few"),
        (held(20, 6, 10, new_classes=10), False, "harm on classes it knew: 6 newly wrong, 0 newly right, p = 0.016"),
        (held(20, 1, 10, new_classes=10), True, "before 21, after 30 of 31"),
        (
            replace(held(20, 4, 4), old_cost=0.8, new_cost=0.6),
            True,
            "24 of 28 samples right, at 80 % and 60 % of the FLOPs, judged by 5 models trained without them",
        ),
        (replace(held(20, 4, 4), adds=True), True, "of 28"),
        (replace(held(0, 0, 0, 12), adds=True), False, "a tie keeps the old"),
        (replace(held(20, 4, 4), old_cost=0.8, new_cost=0.795), False, "a tie keeps the old"),
        (replace(held(20, 4, 4), old_cost=0.6, new_cost=0.8), False, "a tie keeps the old"),
        (replace(held(20, 4, 3), old_cost=0.8, new_cost=0.2), False, "right on fewer samples"),
        (replace(held(20, 6, 6, new_classes=6), old_cost=0.8, new_cost=0.2), False, "harm on classes it knew"),
    ],
)
def test_the_users_samples_decide(answers: Comparison, says: str, *, accepted: bool) -> None:
    verdict = judge_samples(answers, RULES)
    assert verdict.accepted is accepted
    assert says in verdict.reason
    assert "\n" not in verdict.reason
    assert verdict.evidence == Evidence(len(answers.old), 5, int(answers.old.sum()), int(answers.new.sum()))


def test_without_labels_the_reason_says_that_agreement_counts_and_the_confidence_decides_what_is_harm() -> None:
    verdict = judge_samples(held(20, 0, 5, labelled=False), RULES)
    assert verdict.accepted
    assert verdict.reason == (
        "before 20, after 25 of 25 samples in agreement with the last exit, as there are no labels, "
        "judged by 5 models trained without them"
    )
    answers = held(20, 4, 10, new_classes=10)  # p of 4 lost, 0 won: 1/16
    assert judge_samples(answers, Rules(confidence=0.95)).accepted
    assert not judge_samples(answers, Rules(confidence=0.9)).accepted
    none = judge_checks(BETTER, [], RULES)
    assert none == replace(BETTER, reason="before 20, after 25; no global check samples to compare on")


@pytest.mark.parametrize(
    ("checked", "accepted", "says"),
    [
        (check(3, 3), True, "global accuracy before 50.0 %, after 50.0 %: neither loss nor gain is certain at 95 %"),
        # three points fewer, but of 500 samples that is no certain loss of more than a point
        (check(38, 23), True, "global accuracy before 53.0 %, after 50.0 %: a loss of 0.4 points or more is certain"),
        (check(45, 17), False, "global accuracy certainly falls by more than 1 points"),
        # the same counts of more samples: fewer points, and certainly below one
        (check(45, 17, count=5000), True, "a loss of 0.3 points or more is certain"),
        (check(8, 5, exported_lost=45), False, "has certainly fallen by more than 1 points since the export"),
        (check(5, 8, exported_lost=45), True, "neither loss nor gain is certain"),
    ],
)
def test_a_loss_of_global_accuracy_must_be_certain(checked: Check, says: str, *, accepted: bool) -> None:
    verdict = judge_checks(BETTER, [checked], RULES)
    assert verdict.accepted is accepted
    assert says in verdict.reason
    assert verdict.reason.count("before 20, after 25") == 1
    evidence = verdict.evidence
    assert evidence is not None
    assert (evidence.global_before, evidence.global_after) == (checked.old.mean(), checked.new.mean())
    assert evidence.least_loss is not None
    assert evidence.least_gain is not None
    assert evidence.least_loss < checked.old.mean() - checked.new.mean() < -evidence.least_gain


@pytest.mark.parametrize(
    ("answers", "is_open"),
    [
        (held(20, 5, 3), True),
        (held(20, 4, 4), True),
        (held(20, 7, 0), False),  # harm, p = 1/128
        (held(20, 8, 7, new_classes=7), False),  # harm on classes it knew
        (replace(held(20, 5, 3), old_cost=0.6, new_cost=0.8), False),
        (held(20, 5, 3, labelled=False), False),
    ],
)
def test_where_few_samples_leave_it_open_a_certain_gain_of_global_accuracy_decides(
    answers: Comparison, *, is_open: bool
) -> None:
    verdict = judge_samples(answers, RULES)
    assert (verdict.accepted, verdict.is_open) == (False, is_open)
    if is_open:
        better = judge_checks(verdict, [check(17, 45)], RULES)
        assert better.accepted
        assert better.reason.startswith("the samples leave it open, and global accuracy certainly rises: before 2")
        assert "a gain of 3.1 points or more is certain" in better.reason
        for checked in ([check(4, 9)], [check(45, 17)], []):
            assert not judge_checks(verdict, checked, RULES).accepted


def earlier(lost: int, won: int) -> Check:
    return replace(check(lost, won), name="accuracy on earlier samples", exported=None)


def test_a_certain_loss_on_the_users_earlier_samples_refuses_and_the_reason_names_all_three() -> None:
    verdict = judge_checks(BETTER, [check(3, 3), earlier(45, 17)], RULES)
    assert not verdict.accepted
    assert verdict.reason == (
        "accuracy on earlier samples certainly falls by more than 1 points: before 20, after 25; "
        "global accuracy before 50.0 %, after 50.0 %: neither loss nor gain is certain at 95 %; "
        "accuracy on earlier samples before 55.6 %, after 50.0 %: a loss of 3.1 points or more is certain at 95 %"
    )
    evidence = verdict.evidence
    assert evidence is not None
    assert (evidence.global_before, evidence.global_after) == (0.5, 0.5)
    assert (evidence.earlier_before, evidence.earlier_after) == (0.556, 0.5)
    both = judge_checks(BETTER, [check(45, 17), earlier(45, 17)], RULES)
    assert both.reason.startswith(
        "global accuracy certainly falls by more than 1 points and accuracy on earlier samples certainly falls"
    )
    assert judge_checks(BETTER, [check(3, 3), earlier(38, 23)], RULES).accepted
    alone = judge_checks(BETTER, [earlier(3, 3)], RULES)
    assert alone.accepted
    assert "no global check samples to compare on; accuracy on earlier samples before 50.0 %" in alone.reason
    is_open = judge_samples(held(20, 5, 3), RULES)
    assert judge_checks(is_open, [check(17, 45), earlier(3, 3)], RULES).accepted
    for checks in ([earlier(17, 45)], [check(17, 45), earlier(45, 17)]):
        assert not judge_checks(is_open, checks, RULES).accepted
