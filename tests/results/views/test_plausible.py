"""A score at chance, of shuffled rows or of one answer is called so; counts are made by numpy."""

import numpy as np
import pytest

from tuner.metrics import balanced_accuracy
from tuner.results.records.counts import ClassCounts
from tuner.results.views.plausible import one_answer, suspicion
from tuner.targets import targets_of

SINGLE = targets_of("single-label")
NAMES = [f"c{number}" for number in range(100)]


def seen(truth: np.ndarray, answers: np.ndarray, names: list[str] = NAMES) -> str:
    right = float((truth == answers).mean())
    return suspicion({"global_accuracy": right}, ClassCounts.of(answers, truth), names, SINGLE)


def answers_of(share: float, classes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, and answers of which a share is right, the others wrong at random."""
    generator = np.random.default_rng(0)
    truth = np.arange(count) % classes
    wrong = (truth + generator.integers(1, classes, count)) % classes
    return truth, np.where(np.arange(count) < share * count, truth, wrong)


@pytest.mark.parametrize(
    ("share", "classes", "count", "found"),
    [
        (0.01, 100, 400, "no better than guessing one of 100 classes|always answering"),
        (0.025, 40, 400, "no better than guessing one of 40 classes|always answering"),
        (0.1, 10, 60, "guessing one of 10 classes|always answering"),
        (0.5, 2, 40, "guessing one of 2 classes|always answering"),
        (0.0, 5, 50, "always answering 'c0' gives 20.0 %"),
        (0.545, 40, 400, ""),
        (0.3, 10, 100, ""),
        (0.75, 2, 40, ""),
        (0.5, 2, 8, ""),
        (1.0, 5, 50, ""),
    ],
)
def test_a_model_at_chance_on_its_own_data_is_suspected(share: float, classes: int, count: int, found: str) -> None:
    text = seen(*answers_of(share, classes, count))
    assert any(part in text for part in found.split("|"))
    assert bool(text) == bool(found)
    for suspect in ("rows", "mean and std", "RGB or BGR") if found else ():
        assert suspect in text


def test_below_the_most_frequent_class_is_suspected() -> None:
    truth = np.repeat([0, 1, 2], [80, 10, 10])
    answers = np.where(np.arange(100) % 2, truth, 2)
    assert "always answering 'c0' gives 80.0 %" in seen(truth, answers)


@pytest.mark.parametrize("right", [0.0, 0.2])
def test_rows_in_the_order_of_strings_are_suspected(right: float) -> None:
    order = sorted(range(12), key=str)  # 0, 1, 10, 11, 2, ...
    truth = np.tile(np.arange(12), 10)
    answers = np.array(order)[truth]
    answers = np.where(np.arange(120) < right * 120, truth, answers)
    assert "in another order of its rows it would have" in seen(truth, answers)


@pytest.mark.parametrize(("loss", "score", "is_found"), [("multi-label", 0.51, True), ("multi-label", 0.8, False)])
def test_an_auc_of_chance_is_suspected(loss: str, score: float, *, is_found: bool) -> None:
    kind = targets_of(loss)  # type: ignore[arg-type]  # of a table
    assert bool(suspicion({"global_accuracy": score}, None, NAMES, kind)) == is_found
    assert not suspicion({"local_accuracy": 0.0}, None, NAMES, kind)


@pytest.mark.parametrize(
    ("truth", "answers", "text"),
    [
        (
            [0] * 97 + [1] * 3,
            [0] * 100,
            "97.0 % is what answering '0' always gives; the mean over classes, its balanced",
        ),
        ([0] * 80 + [1] * 20, [0] * 70 + [1] * 10 + [0] * 20, "70.0 % is less than the 80.0 % of answering '0' always"),
        ([0] * 80 + [1] * 20, [0] * 80 + [1] * 20, ""),
        ([0] * 50 + [1] * 50, [0] * 100, ""),
    ],
)
def test_one_answer_always_is_called_so(truth: list[int], answers: list[int], text: str) -> None:
    labels, outputs = np.array(truth), np.eye(2, dtype=np.float32)[answers]
    values = SINGLE.scores("local", outputs, labels, labelled=True)
    found = one_answer(values, ClassCounts.of(np.array(answers), labels), ["0", "1"], "local")
    assert text in found
    assert bool(text) == bool(found)
    recalls = [np.mean(np.array(answers)[labels == row] == row) for row in (0, 1)]
    assert balanced_accuracy(outputs, labels) == pytest.approx(np.mean(recalls))
    assert ("local_balanced_accuracy" in values) == (truth.count(0) != truth.count(1))
