"""Decisions of the gate on made-up answers: what every runtime of a bundle must decide alike."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tuner.arrays import Flags
from tuner.runtime.train.gate import Check, Comparison, Rules, Verdict, earlier_checks, judge_checks, judge_samples

#: Samples that both models answer right, that are lost, that are won, and that both answer wrong.
COUNTS = ((4, 0, 4, 4), (8, 1, 6, 0), (5, 5, 5, 5), (20, 9, 2, 9), (20, 0, 0, 0), (3, 1, 1, 1), (90, 8, 9, 33))
#: The same of the global check samples; none where the bundle brings none.
CHECKS = (None, (180, 3, 4, 13), (150, 25, 2, 23), (100, 1, 24, 75))
#: The same of the user's earlier samples: of labels that came again, and of the others.
EARLIER = (((60, 0, 5, 5), (30, 10, 0, 0)), ((60, 12, 0, 5), (30, 0, 0, 0)), ((60, 2, 3, 5), (30, 1, 2, 2)))


def gate_cases() -> list[dict[str, Any]]:
    """Return cases as JSON holds them: what is compared, and the verdict."""
    return [{**case, **decided(case)} for case in _cases()]


def decided(case: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of the gate on a case, as JSON holds it."""
    rules = Rules(case["confidence"], case["global_drop"], case["least"])
    comparison = Comparison(
        _flags(case["old"]),
        _flags(case["new"]),
        _flags(case["known"]),
        case["labelled"],
        case["old_cost"],
        case["new_cost"],
        5,
        adds=case.get("adds", False),
    )
    verdict = judge_samples(comparison, rules)
    if verdict.accepted or (verdict.is_open and case["check"] is not None):
        verdict = judge_checks(verdict, [*_checks(case["check"]), *_earlier(case.get("earlier"))], rules)
    return _as_json(verdict)


def _cases() -> Iterator[dict[str, Any]]:
    for counts, check in product(COUNTS, CHECKS):
        old, new = _answers(counts)
        yield _case(old, new, check)
    old, new = _answers((20, 6, 9, 5))
    yield _case(old, new, None, known=old)
    yield _case(old, new, None, labelled=False)
    yield _case(*_answers((20, 0, 0, 4)), None, new_cost=0.5)
    yield _case(*_answers((20, 2, 2, 4)), CHECKS[3], new_cost=0.5, confidence=0.8)
    for counts in ((20, 2, 2, 4), (20, 3, 2, 4), (0, 0, 0, 12)):
        yield _case(*_answers(counts), None, adds=True)
    for counts, (came, others), check in product(((20, 1, 8, 0), (20, 3, 3, 4)), EARLIER, CHECKS[::3]):
        before, after = map("".join, zip(_answers(came), _answers(others), strict=True))
        for mark in "10":  # a head in closed form has no others
            marks = "0" * sum(came) + mark * sum(others)
            yield _case(*_answers(counts), check, earlier={"old": before, "new": after, "others": marks})


def _case(old: str, new: str, check: tuple[int, ...] | None, **changes: Any) -> dict[str, Any]:
    checked = None
    if check is not None:
        before, after = _answers(check)
        checked = {"exported": before, "old": before, "new": after}
    rules = Rules()
    case = {
        "confidence": rules.confidence,
        "global_drop": rules.global_drop,
        "least": rules.least,
        "old": old,
        "new": new,
        "known": "1" * len(old),
        "labelled": True,
        "old_cost": 1.0,
        "new_cost": 1.0,
        "adds": False,
        "check": checked,
        "earlier": None,
    }
    return {**case, **changes}


def _answers(counts: tuple[int, ...]) -> tuple[str, str]:
    """Return whether each answer of the old and of the new model is right, as ones and zeros."""
    both, lost, won, neither = counts
    return "1" * (both + lost) + "0" * (won + neither), "1" * both + "0" * lost + "1" * won + "0" * neither


def _flags(text: str) -> Flags:
    return np.array([letter == "1" for letter in text], bool)


def _checks(check: dict[str, str] | None) -> list[Check]:
    if check is None:
        return []
    exported, old, new = (_flags(check[name]) for name in ("exported", "old", "new"))
    return [Check(old, new, exported=exported)]


def _earlier(earlier: dict[str, str] | None) -> list[Check]:
    if earlier is None:
        return []
    old, new, others = (_flags(earlier[name]) for name in ("old", "new", "others"))
    return earlier_checks(old, new, others, "earlier")


def _as_json(verdict: Verdict) -> dict[str, Any]:
    evidence = verdict.evidence
    bounds = None if evidence is None or evidence.least_loss is None else [evidence.least_loss, evidence.least_gain]
    return {"accepted": verdict.accepted, "bounds": bounds}
