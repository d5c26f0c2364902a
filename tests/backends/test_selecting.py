"""What a selector may choose, and what is said of one that chooses otherwise."""

from typing import Any

import numpy as np
import pytest

from tests.plugins.candidates import candidates
from tuner.backends.selecting import Candidates, SelectorError, choose
from tuner.errors import TunerError
from tuner.plugin import Selector

LABELS = np.array([0, 0, 0, 1, 1])
ASKED = candidates(np.zeros((5, 2), np.float32), LABELS, {0: 2, 1: 1})


def choosing(answer: object) -> Selector:
    def selector(asked: Candidates, settings: object) -> Any:
        return answer

    return selector


@pytest.mark.parametrize("answer", [[0, 2, 4], (4, 0, 2), np.array([2, 4, 0]), np.array([0, 2, 4], np.uint8)])
def test_rows_come_back_sorted(answer: object) -> None:
    rows = choose("k", choosing(answer), ASKED, {})
    assert rows.tolist() == [0, 2, 4]
    assert rows.dtype == np.int64


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 1, 2], "selector 'k': it must choose counts[0] = 2 of class 0, but it chose 3"),
        ([0, 1], "selector 'k': it must choose counts[1] = 1 of class 1, but it chose 0"),
        ([0, 0, 3], "selector 'k': a candidate may be chosen once, but row 0 is there twice"),
        ([0, 1, 5], "selector 'k': row numbers must be in [0, 4], but one is 5"),
        ([0, 1, -1], "selector 'k': row numbers must be in [0, 4], but one is -1"),
        (None, "selector 'k': it must return row numbers of candidates, but it returned None"),
        ([0.0, 1.0, 3.0], "selector 'k': it must return row numbers of candidates, but it returned [0.0, 1.0, 3.0]"),
        ([True, True, False, True, False], "must return row numbers of candidates"),
        ([[0], [1, 3]], "must return row numbers of candidates"),
        ("013", "must return row numbers of candidates"),
    ],
)
def test_another_choice_is_refused_with_the_rule(answer: object, message: str) -> None:
    with pytest.raises(SelectorError) as error:
        choose("k", choosing(answer), ASKED, {})
    assert message in str(error.value)
    assert error.value.kind == "k"


def test_an_exception_is_told_with_its_place() -> None:
    def broken(asked: Candidates, settings: object) -> list[int]:
        raise ZeroDivisionError("no class")

    with pytest.raises(SelectorError, match=r"selector 'k': ZeroDivisionError: no class.*test_selecting\.py") as error:
        choose("k", broken, ASKED, {})
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert isinstance(error.value, TunerError)


def test_a_choice_by_labels_reads_no_features() -> None:
    def read() -> np.ndarray:
        raise AssertionError("features were read")

    by_labels = Candidates(LABELS, {0: 1}, LABELS, 0, read, read)
    assert choose("k", choosing([2]), by_labels, {}).tolist() == [2]


def test_features_are_read_once() -> None:
    times: list[int] = []

    def read() -> np.ndarray:
        times.append(1)
        return np.zeros((5, 2), np.float32)

    asked = Candidates(LABELS, {}, LABELS, 0, read, read)
    assert asked.features is asked.features
    assert len(times) == 1
