"""Exits of a regression: confidence by agreement with the exit before, and the thresholds that follow from it."""

import numpy as np
import numpy.typing as npt
import pytest

from tuner.arrays import Floats
from tuner.runtime.infer.calibration import GRID, Answers, Calibration, Costs, calibrate, exits_taken
from tuner.targets import Regression
from tuner.targets.regression import LEAST

COSTS = Costs((1.0, 2.0, 3.0, 6.0), (0.1, 0.1, 0.1))


def values(seed: int, spread: tuple[float, ...] = (0.8, 0.4, 0.3, 0.2)) -> tuple[Floats, Floats]:
    """Return what four exits say of 300 samples with two targets, some of which are hard, and the targets."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=(300, 2)).astype(np.float32)
    hard = generator.uniform(0.2, 2.0, (300, 1))
    errors = np.array(spread)[:, None, None] * hard * generator.normal(size=(4, 300, 2))
    return (truth + errors).astype(np.float32), truth


def left(said: Floats, found: Calibration) -> npt.NDArray[np.int64]:
    """Return the exit of all that each sample leaves at, once those that are not kept are gone."""
    kept = [*found.kept, len(said) - 1]
    return np.array(kept)[exits_taken(Regression().confidences(said[kept]), found.chosen.thresholds)]


def test_confidence_falls_with_the_largest_distance_to_the_exit_before() -> None:
    said = np.array([[[0, 0], [1, 1]], [[0.5, -0.25], [1, 1]], [[0.5, 0], [900, 1]]], np.float32)
    found = Regression().confidences(said)
    np.testing.assert_allclose(found, [[LEAST, LEAST], [np.exp(-0.5), 1], [np.exp(-0.25), LEAST]])
    assert 0 < LEAST < GRID[1]  # nothing is compared with the first exit: all samples leave there, or none
    assert exits_taken(found, (0.0, 0.5)).tolist() == [0, 0]
    assert exits_taken(found, (0.05, 0.7)).tolist() == [2, 1]
    assert exits_taken(found, (0.05, 0.0)).tolist() == [1, 1]


def test_an_answer_is_as_right_as_targets_are_near() -> None:
    said, truth = np.array([[[0.5, 0.6], [0, 0.4]]], np.float32), np.zeros((2, 2), np.float32)
    assert Regression().correctness(said, truth).tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("against", ["original", "best"])
@pytest.mark.parametrize("per_exit", [False, True])
@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_no_more_than_the_tolerance_is_lost_on_the_calibration_samples(
    seed: int, against: str, per_exit: bool, tolerance: float
) -> None:
    said, truth = values(seed)
    answers = Answers.of(said, truth, (1.0,) * 4, Regression())
    found = calibrate(answers, COSTS, tolerance=tolerance, against=against, per_exit=per_exit)  # type: ignore[arg-type]
    exits = left(said, found)
    right = Regression().correctness(said, truth)[exits, np.arange(300)].mean()
    assert right == pytest.approx(found.chosen.accuracy)
    assert right >= found.reference - tolerance - 1e-9
    kept = COSTS.select(found.kept).cumulative()
    assert found.chosen.mean_cost == pytest.approx(np.mean([kept[[*found.kept, 3].index(exit_)] for exit_ in exits]))


def test_an_exit_is_kept_for_the_one_that_is_compared_with_it() -> None:
    said, truth = values(0)
    answers = Answers.of(said, truth, (1.0,) * 4, Regression())
    found = calibrate(answers, COSTS, tolerance=0.02)
    shares = dict(zip(found.kept, found.chosen.rates, strict=False))
    assert min(shares.values()) == 0  # nobody leaves at the first
    assert max(shares.values()) > 0.1
    alone = calibrate(answers.select([1]), COSTS.select([1]), tolerance=0.02)
    assert alone.kept == ()  # without it, one exit can be left by all or by nobody
    assert alone.chosen.mean_cost == COSTS.reached[-1] > found.chosen.mean_cost
    all_leave = calibrate(answers.select([1]), COSTS.select([1]), tolerance=0.5)
    assert (all_leave.kept, all_leave.chosen.thresholds, all_leave.chosen.rates) == ((0,), (0.0,), (1.0, 0.0))
