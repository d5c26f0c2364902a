"""Thresholds, temperature and calibration error against brute force; exits of a regression by their agreement."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from tuner.arrays import Floats
from tuner.metrics import expected_calibration_error
from tuner.runtime.infer.calibration import (
    GRID,
    Answers,
    Calibration,
    Costs,
    calibrate,
    exits_taken,
    operating_point,
    pareto_front,
    right_answers,
    sweep,
)
from tuner.runtime.infer.mcnemar import most_drop
from tuner.targets import SINGLE_LABEL, MultiLabel, Regression
from tuner.targets.regression import LEAST

COSTS = Costs((1.0, 2.0, 4.0), (0.5, 0.5))


def made(seed: int, samples: int = 200, skill: tuple[float, ...] = (0.6, 0.8, 0.95)) -> Answers:
    """Return answers that are right about as often as they are sure."""
    generator = np.random.default_rng(seed)
    sure = np.clip(generator.normal(np.array(skill)[:, None], 0.2, (len(skill), samples)), 0, 1)
    return Answers(sure, (generator.random(sure.shape) < sure).astype(float))


def one_by_one(answers: Answers, costs: Costs, thresholds: tuple[float, ...]) -> tuple[float, float, list[float]]:
    """Return accuracy, mean cost and rates as a device meets them, a sample at a time."""
    right, spent, taken = 0.0, 0.0, [0] * len(answers.right)
    for sample in range(answers.right.shape[1]):
        exit_ = next(
            (at for at, limit in enumerate(thresholds) if answers.confidences[at, sample] > limit), len(thresholds)
        )
        right += answers.right[exit_, sample]
        spent += costs.reached[exit_] + sum(costs.heads[: exit_ + 1])
        taken[exit_] += 1
    count = answers.right.shape[1]
    return right / count, spent / count, [count_left / count for count_left in taken]


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_is_what_a_device_would_do(seed: int) -> None:
    answers = made(seed)
    points = sweep(answers, COSTS)
    assert [setting.thresholds[0] for setting in points] == list(GRID)
    for setting in points:
        accuracy, cost, rates = one_by_one(answers, COSTS, setting.thresholds)
        assert setting.accuracy == pytest.approx(accuracy)
        assert setting.mean_cost == pytest.approx(cost)
        assert setting.rates == pytest.approx(rates)
        assert sum(setting.rates) == pytest.approx(1)
    costs = [setting.mean_cost for setting in points]
    assert costs == sorted(costs)


def test_nobody_is_surer_than_one_so_that_a_threshold_of_one_keeps_everything_to_the_end() -> None:
    answers = Answers(np.ones((3, 5)), np.eye(3, 5))
    last = operating_point(answers, COSTS, (1.0, 1.0))
    assert last.rates == (0.0, 0.0, 1.0)
    assert last.accuracy == answers.right[-1].mean()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_cheapest_thresholds_within_the_tolerance_are_chosen(
    seed: int, tolerance: float, confidence: float
) -> None:
    answers = made(seed)
    calibration = calibrate(answers, COSTS, tolerance=tolerance, confidence=confidence, prune=False)
    assert calibration.reference == answers.right[-1].mean()
    costs = {}
    for thresholds in [*((t, t) for t in GRID), *((t, 0.0) for t in GRID)]:
        right = right_answers(answers, thresholds)
        if most_drop(answers.right[-1], right, confidence) <= tolerance:
            costs[thresholds] = one_by_one(answers, COSTS, thresholds)[1]
    assert calibration.chosen.mean_cost == pytest.approx(min(costs.values(), default=COSTS.cumulative()[-1]))


def test_an_exit_may_be_the_end() -> None:
    sure = np.stack([np.full(400, 0.5), np.full(400, 0.5), np.full(400, 0.5)])
    right = np.stack([np.arange(400.0) % 2, np.ones(400), np.ones(400)])
    chosen = calibrate(Answers(sure, right), COSTS, tolerance=0.01, confidence=0.95).chosen
    assert chosen.thresholds == (0.0,)  # at the second exit, where all leave; the first is pruned
    assert chosen.rates == (1.0, 0.0)


def test_no_more_than_the_tolerance_is_lost_of_what_was_known_before() -> None:
    own = made(0)
    own.right[-1] = 0.0  # the last exit knows none of the user's
    known = made(1)
    known.right[:-1], known.confidences[:-1] = 0.0, 0.6 * known.confidences[:-1]  # the others, nothing else
    for against in ("original", "best"):
        free = calibrate(own, COSTS, tolerance=0.01, against=against)
        kept = calibrate(own, COSTS, tolerance=0.01, against=against, known=known)
        lost = {
            name: most_drop(known.right[-1], right_answers(known.select(one.kept), one.chosen.thresholds), 0.5)
            for name, one in (("free", free), ("kept", kept))
        }
        assert lost["kept"] <= 0.01 < lost["free"]
        assert kept.chosen.accuracy > 0  # who is sure enough still leaves


def test_few_samples_do_not_show_that_little_is_lost() -> None:
    for count, leave in ((100, 0), (300, 1)):
        same = Answers(np.full((2, count), 0.9), np.ones((2, count)))
        sides = [calibrate(same, Costs((1, 4), (0.1,)), tolerance=0.01, confidence=at) for at in (0.5, 0.95)]
        assert [len(found.kept) for found in sides] == [1, leave]


def test_against_the_best_no_more_is_lost_than_the_tolerance() -> None:
    answers = made(0, skill=(0.9, 0.6, 0.3))
    best = max(setting.accuracy for setting in sweep(answers, COSTS))
    calibration = calibrate(answers, COSTS, tolerance=0.01, against="best")
    assert calibration.reference == best > answers.right[-1].mean()
    assert calibration.chosen.accuracy >= best - 0.01


def test_thresholds_of_their_own_cost_no_more_and_keep_the_tolerance() -> None:
    answers = made(1)
    shared = calibrate(answers, COSTS, tolerance=0.01, prune=False).chosen
    own = calibrate(answers, COSTS, tolerance=0.01, per_exit=True, prune=False).chosen
    assert own.mean_cost <= shared.mean_cost
    assert own.accuracy >= answers.right[-1].mean() - 0.01 - 1e-12
    accuracies = {pair: operating_point(answers, COSTS, pair).accuracy for pair in product(GRID, repeat=2)}
    assert own.accuracy == accuracies[own.thresholds[0], own.thresholds[1]]


def test_exits_that_guess_or_that_nobody_takes_are_pruned() -> None:
    sure = np.stack([np.full(100, 0.9), np.full(100, 0.02), np.full(100, 0.9), np.full(100, 0.9)])
    right = np.stack([np.zeros(100), np.ones(100), np.ones(100), np.ones(100)])
    calibration = calibrate(Answers(sure, right), Costs((1, 2, 3, 4), (0.1, 0.1, 0.1)), tolerance=0.0, chance=0.1)
    assert calibration.kept == (
        1,
    )  # exit 0 is wrong; exit 1 is right even at threshold 0, and leaves nothing for exit 2
    assert calibration.chosen.rates == (1.0, 0.0)
    assert calibrate(Answers(sure[[0, 3]], right[[0, 3]]), Costs((1, 4), (0.1,)), tolerance=0.0).kept == ()


def test_without_samples_nothing_divides_by_zero() -> None:
    assert operating_point(Answers(np.empty((2, 0)), np.empty((2, 0))), Costs((1, 2), (0.1,)), (0.5,)).accuracy == 0.0


def test_the_front_is_what_no_other_point_beats() -> None:
    points = sweep(made(2), COSTS)
    kept = pareto_front(points)
    for candidate in points:
        beaten = any(
            other.accuracy >= candidate.accuracy
            and other.mean_cost <= candidate.mean_cost
            and (other.accuracy, other.mean_cost) != (candidate.accuracy, candidate.mean_cost)
            for other in points
        )
        assert beaten == all(
            (candidate.accuracy, candidate.mean_cost) != (other.accuracy, other.mean_cost) for other in kept
        )


def test_the_first_sure_exit_takes_a_sample() -> None:
    sure = np.array([[0.2, 0.9, 0.6, 0.1], [0.9, 0.9, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1]])
    assert exits_taken(sure, (0.5, 0.5)).tolist() == [1, 0, 0, 2]


def softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers: npt.NDArray[np.float64] = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)  # type: ignore[no-any-return]  # numpy's stubs say Any


def test_confidence_is_the_largest_probability() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 7, 5)) * 10
    np.testing.assert_allclose(SINGLE_LABEL.confidences(logits, 2.0), softmax(logits / 2).max(-1))
    p = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(MultiLabel().probabilities(logits.astype(np.float32)), p, rtol=1e-4)
    np.testing.assert_allclose(MultiLabel().confidences(logits), np.maximum(p, 1 - p).mean(-1))


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_fitted_temperature_is_the_one_that_made_the_labels(true: float) -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(4000, 5)) * 3
    labels = np.array([generator.choice(5, p=row) for row in softmax(logits / true)])
    assert SINGLE_LABEL.fitted_temperature(logits[None], labels) == pytest.approx(true, rel=0.15)
    several = (generator.random(logits.shape) < 1 / (1 + np.exp(-logits / true))).astype(np.float32)
    assert MultiLabel().fitted_temperature(logits[None], several) == pytest.approx(true, rel=0.15)


def test_calibration_error_is_the_gap_between_sure_and_right() -> None:
    assert expected_calibration_error(np.array([0.91, 0.92, 0.21]), np.array([1.0, 0.0, 0.0])) == pytest.approx(
        (2 * (0.915 - 0.5) + 0.21) / 3
    )
    assert expected_calibration_error(np.ones(4), np.ones(4)) == 0.0


FOUR_COSTS = Costs((1.0, 2.0, 3.0, 6.0), (0.1, 0.1, 0.1))


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
    found = calibrate(answers, FOUR_COSTS, tolerance=tolerance, against=against, per_exit=per_exit)  # type: ignore[arg-type]
    exits = left(said, found)
    right = Regression().correctness(said, truth)[exits, np.arange(300)].mean()
    assert right == pytest.approx(found.chosen.accuracy)
    assert right >= found.reference - tolerance - 1e-9
    kept = FOUR_COSTS.select(found.kept).cumulative()
    assert found.chosen.mean_cost == pytest.approx(np.mean([kept[[*found.kept, 3].index(exit_)] for exit_ in exits]))


def test_an_exit_is_kept_for_the_one_that_is_compared_with_it() -> None:
    said, truth = values(0)
    answers = Answers.of(said, truth, (1.0,) * 4, Regression())
    found = calibrate(answers, FOUR_COSTS, tolerance=0.02)
    shares = dict(zip(found.kept, found.chosen.rates, strict=False))
    assert min(shares.values()) == 0  # nobody leaves at the first
    assert max(shares.values()) > 0.1
    alone = calibrate(answers.select([1]), FOUR_COSTS.select([1]), tolerance=0.02)
    assert alone.kept == ()  # without it, one exit can be left by all or by nobody
    assert alone.chosen.mean_cost == FOUR_COSTS.reached[-1] > found.chosen.mean_cost
    all_leave = calibrate(answers.select([1]), FOUR_COSTS.select([1]), tolerance=0.5)
    assert (all_leave.kept, all_leave.chosen.thresholds, all_leave.chosen.rates) == ((0,), (0.0,), (1.0, 0.0))
