"""Scores predicted from those of plans with near knobs, and the gain that is expected of them."""

import numpy as np
import pytest

from tuner.arrays import Doubles
from tuner.plan.parts import Scalar
from tuner.plugin.knobs import Choice, Knob, Numeric
from tuner.results.scores.pareto import area
from tuner.search.propose.surrogate import NOISE, Coordinates, Surrogate, expected_gain

KNOBS: dict[str, Knob] = {
    "rate": Numeric("rate", 1e-4, 1e-2, whole=False, log=True),
    "depth": Numeric("depth", 1, 5, whole=True),
    "bits": Choice("bits", (16, 8, 4)),
    "optimiser": Choice("optimiser", ("adam", "sgd")),
    "fixed": Choice("fixed", ("one",)),
}


def plan(rate: float, depth: int = 3, bits: int = 8, optimiser: str = "adam") -> dict[str, Scalar]:
    return {"rate": rate, "depth": depth, "bits": bits, "optimiser": optimiser, "fixed": "one"}


def test_knobs_are_scaled_to_the_unit_and_options_that_are_no_numbers_are_one_apart() -> None:
    coordinates = Coordinates(KNOBS)
    low, high, far = coordinates.points([plan(1e-4, 1, 4), plan(1e-2, 5, 16), plan(1e-2, 5, 16, "sgd")])
    assert sorted(set(low) | set(high)) == pytest.approx([0.0, 0.5**0.5, 1.0])
    assert np.linalg.norm(high - far) == pytest.approx(1.0)
    assert len(low) == 5  # bits, depth, two of the optimiser, rate
    assert coordinates.points([{}, plan(99.0, bits=3)]).tolist() == [[0.5, 0.5, 0, 0, 0.5], [0.5, 0.5, 0.5**0.5, 0, 1]]


def drawn(count: int) -> tuple[list[dict[str, Scalar]], Doubles]:
    """The rate matters, nothing else does."""
    generator = np.random.default_rng(0)
    plans = [
        plan(
            10 ** generator.uniform(-4, -2), int(generator.integers(1, 6)), int(generator.choice([16, 8, 4])),
            str(generator.choice(["adam", "sgd"])),
        )
        for _ in range(count)
    ]  # fmt: skip
    scores = [[0.3 + 0.1 * np.log10(float(one["rate"]) * 1e4), 0.5] for one in plans]
    return plans, np.array(scores)


def test_scores_are_predicted_and_what_is_far_is_less_certain() -> None:
    plans, scores = drawn(40)
    surrogate = Surrogate(Coordinates({name: KNOBS[name] for name in ("rate", "fixed")}))
    surrogate.fit(plans[:-10], scores[:-10])
    mean, deviation = surrogate.predict(plans[-10:])
    assert np.abs(mean - scores[-10:]).max() < 0.02
    surrogate.fit([plan(1e-4), plan(1.2e-4)], np.array([[0.3, 0.5], [0.31, 0.5]]))
    near, far = surrogate.predict([plan(1.1e-4), plan(1e-2)])[1]
    assert far[0] > 2 * near[0]
    assert deviation.max() < far.max()


def test_knobs_that_do_not_matter_get_long_scales_and_the_fit_follows_from_the_trials_alone() -> None:
    plans, scores = drawn(60)
    coordinates = Coordinates(KNOBS)
    grown, fresh = Surrogate(coordinates), Surrogate(coordinates)
    for count in range(1, 61):
        grown.fit(plans[:count], scores[:count])
    fresh.fit(plans, scores)
    test, known = drawn(80)[0][60:], drawn(80)[1][60:]
    assert np.array_equal(grown.predict(test)[0], fresh.predict(test)[0])
    assert np.abs(fresh.predict(test)[0] - known).mean() < 0.02


def test_one_plan_or_equal_scores_are_no_error() -> None:
    surrogate = Surrogate(Coordinates(KNOBS))
    surrogate.fit([plan(1e-3)], np.array([[0.4, 0.5]]))
    mean, deviation = surrogate.predict([plan(1e-3)])
    assert mean[0] == pytest.approx([0.4, 0.5])
    assert deviation[0] == pytest.approx(0.05 * np.sqrt(NOISE / (1 + NOISE)), rel=1e-3)
    surrogate.fit([plan(1e-3)] * 10, np.full((10, 1), 0.4))
    assert surrogate.predict([plan(1e-3)])[0].item() == pytest.approx(0.4)


@pytest.mark.parametrize("seed", range(3))
def test_the_expected_gain_is_the_mean_over_draws(seed: int) -> None:
    generator = np.random.default_rng(seed)
    known = [tuple(row) for row in generator.uniform(0.2, 0.8, (4, 2)).tolist()]
    mean, deviation = generator.uniform(0.3, 0.9, (3, 2)), generator.uniform(0.02, 0.2, (3, 2))
    front = [{"local_accuracy": local, "global_accuracy": global_} for local, global_ in known]
    for place, expected in enumerate(expected_gain(mean, deviation, known)):
        draws = generator.normal(mean[place], deviation[place], (4000, 2))
        members = [{"local_accuracy": local, "global_accuracy": global_} for local, global_ in draws]
        gains = [area([*front, one]) - area(front) for one in members]
        assert expected == pytest.approx(np.mean(gains), abs=float(4 * np.std(gains) / 60))


def test_without_global_data_it_is_the_expected_improvement() -> None:
    mean, deviation = np.array([[0.6], [0.5]]), np.array([[1e-9], [0.1]])
    gains = expected_gain(mean, deviation, [(0.5,), (0.3,)])
    assert gains == pytest.approx([0.1, 0.1 / np.sqrt(2 * np.pi)])
