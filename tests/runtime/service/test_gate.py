"""The gate: which models it accepts, and the reasons it gives."""

from dataclasses import replace

import numpy as np
import pytest

from tuner.runtime.service.gate import GlobalCheck, HoldoutComparison, Rules, Verdict, judge

RULES = Rules()


def held(
    kept: int, lost: int, won: int, neither: int = 0, *, new_classes: int = 0, labelled: bool = True
) -> HoldoutComparison:
    """Return answers by how many samples both, only the old, only the new, and neither had right.

    The last `new_classes` of those won have labels that the old model lacked.
    """
    old = np.repeat([True, True, False, False], [kept, lost, won, neither])
    new = np.repeat([True, False, True, False], [kept, lost, won, neither])
    known = np.ones(len(old), bool)
    known[kept + lost + won - new_classes : kept + lost + won] = False
    return HoldoutComparison(old, new, known, labelled)


@pytest.mark.parametrize(
    ("answers", "check", "accepted", "says"),
    [
        (held(20, 0, 5), None, True, "before 20, after 25 of 25"),
        (held(20, 3, 5), None, True, "before 23, after 25 of 28"),
        (held(20, 5, 3), None, False, "right on fewer samples"),
        (held(20, 4, 4), None, False, "a tie keeps the old"),
        (held(25, 0, 0), None, False, "a tie keeps the old"),
        (held(5, 0, 4), None, False, "9 held-out samples are too few"),
        (held(0, 0, 0), None, False, "0 held-out samples are too few"),
        (
            held(20, 6, 10, new_classes=10),
            None,
            False,
            "harm on classes it knew: 6 newly wrong, 0 newly right, p = 0.016",
        ),
        (held(20, 1, 10, new_classes=10), None, True, "before 21, after 30 of 31"),
        (held(20, 0, 5), GlobalCheck(0.80, 0.795), True, "global accuracy before 80.0 %, after 79.5 %"),
        (held(20, 0, 5), GlobalCheck(0.80, 0.78), False, "global accuracy falls by more than 1 points"),
        (
            replace(held(20, 4, 4), old_cost=0.8, new_cost=0.6),
            None,
            True,
            "24 of 28 held-out samples right, at 80 % and 60 %",
        ),
        (replace(held(20, 4, 4), old_cost=0.8, new_cost=0.795), None, False, "a tie keeps the old"),
        (replace(held(20, 4, 4), old_cost=0.6, new_cost=0.8), None, False, "a tie keeps the old"),
        (replace(held(20, 4, 3), old_cost=0.8, new_cost=0.2), None, False, "right on fewer samples"),
        (replace(held(20, 6, 6, new_classes=6), old_cost=0.8, new_cost=0.2), None, False, "harm on classes it knew"),
    ],
)
def test_the_gate(answers: HoldoutComparison, check: GlobalCheck | None, says: str, *, accepted: bool) -> None:
    verdict = judge(answers, check, RULES)
    assert verdict.accepted is accepted
    assert says in verdict.reason
    assert "\n" not in verdict.reason


def test_without_labels_the_reason_says_that_agreement_counts() -> None:
    verdict = judge(held(20, 0, 5, labelled=False), None, RULES)
    assert verdict == Verdict(
        accepted=True,
        reason="before 20, after 25 of 25 held-out samples in agreement with the last exit, as there are no labels; "
        "no global check samples to compare on",
    )


def test_the_confidence_decides_what_is_harm() -> None:
    answers = held(20, 4, 10, new_classes=10)  # p of 4 lost, 0 won: 1/16
    assert judge(answers, None, Rules(confidence=0.95)).accepted
    assert not judge(answers, None, Rules(confidence=0.9)).accepted
