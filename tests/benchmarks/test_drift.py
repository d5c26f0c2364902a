"""The streams of the benchmark of drift, and what it makes of figures."""

import numpy as np
import pytest

from benchmarks.lib.report import Row
from benchmarks.models.drift import (
    AFTER,
    BEFORE,
    CLASSES,
    FAINT,
    FREQUENCIES,
    KINDS,
    LATER,
    LOOKS,
    PAPER,
    TEST,
    alarmed,
    claims,
    regained,
    stream,
)

KNOWN = [(np.full((1, 8, 8), number / 1024, np.float32), str(number % LATER)) for number in range(700)]
NEW = [(np.full((1, 8, 8), -float(number), np.float32), str(LATER + number % 2)) for number in range(1, 200)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_sample_comes_twice_and_classes_are_new_only_where_that_changes(kind: str) -> None:
    first, then = stream(kind, KNOWN, NEW, np.random.default_rng(0))
    assert (len(first), len(then)) == (BEFORE, AFTER + TEST)
    unchanged = [(pixels - PAPER) / FAINT if kind == LOOKS else pixels for pixels, _ in then]
    numbers = [round(1024 * float(pixels[0, 0, 0])) for pixels in [*(pixels for pixels, _ in first), *unchanged]]
    assert len(set(numbers)) == BEFORE + AFTER + TEST
    assert all(int(label) < LATER for _, label in first)
    assert any(int(label) >= LATER for _, label in then) is (kind == CLASSES)


def test_frequencies_are_exchanged() -> None:
    first, then = stream(FREQUENCIES, KNOWN, NEW, np.random.default_rng(0))
    counts = [np.bincount([int(label) for _, label in part], minlength=LATER) for part in (first, then)]
    rare = counts[0].argsort()[:4]
    assert [round(count[rare].sum() / count.sum(), 2) for count in counts] == [0.2, 0.8]


def of(kind: str, gains: list[float], alarms: int = 0) -> list[Row]:
    """Return rows with some gains in accuracy, of which the first have a false alarm."""
    return [
        {"change": kind, "labels": "yes", "accuracy before": 0.9, "after": 0.9 + gain, "rounds": 1, "accepted": 1,
         "false alarms": int(number < alarms)}
        for number, gain in enumerate(gains)
    ]  # fmt: skip


def test_a_loss_counts_by_its_unfavourable_end() -> None:
    assert regained(of(FREQUENCIES, [0.0] * 5), FREQUENCIES).met
    assert not regained(of(FREQUENCIES, [-0.03, 0.03, -0.03, 0.03]), FREQUENCIES).met
    assert not regained(of(LOOKS, [-0.1, 0.3, 0.0]), LOOKS).met
    assert regained(of(LOOKS, [0.1, 0.11, 0.12]), LOOKS).met


def test_alarms_are_bounded_where_the_model_is_still_right() -> None:
    def rows(alarms: int, rounds: int = 0) -> list[Row]:
        """Return 20 rows, of which the first have an alarm."""
        return [
            {**row, "change": kind, "labels": labels, "noticed": number < alarms, "delay": 9, "rounds": rounds}
            for kind in KINDS
            for labels in ("yes", "no")
            for number, row in enumerate(of(kind, [0.0] * 20))
        ]

    def unmet(found: list[Row]) -> set[str]:
        return {claim.claim.partition(",")[0] for claim in claims(found) if not claim.met}

    assert unmet(rows(0)) == {CLASSES, LOOKS}  # not noticed
    assert unmet(rows(20)) == {CLASSES, LOOKS, FREQUENCIES, "nothing"}  # regains nothing; alarms for nothing
    assert len(claims(rows(0, rounds=1))) == len(claims(rows(0))) + 2


def test_few_streams_do_not_show_that_alarms_are_rare() -> None:
    assert not alarmed(of(LOOKS, [0.0] * 20), "yes").met
    assert alarmed(of(LOOKS, [0.0] * 80, alarms=2), "yes").met
    assert not alarmed(of(LOOKS, [0.0] * 80, alarms=5), "yes").met
