"""Fits of the decay of scores."""

import numpy as np
import pytest

from tuner_growth.decay import MOST_A, MOST_C, Decay, fit


@pytest.mark.parametrize(("a", "b", "c"), [(40.0, 0.7, 3.0), (90.0, 0.95, 0.5), (12.0, 0.2, 0.0), (99.0, 0.5, 10.0)])
def test_a_synthetic_decay_is_recovered(a: float, b: float, c: float) -> None:
    x = np.linspace(0, 8, 40)
    found = fit(list(x), list(a * b**x + c))
    assert (found.a, found.b, found.c) == pytest.approx((a, b, c), rel=5e-3, abs=5e-3)


def test_noise_moves_a_fit_only_a_little() -> None:
    generator = np.random.default_rng(0)
    x = np.linspace(1, 6, 80)
    found = fit(list(x), list(40 * 0.7**x + 3 + generator.normal(0, 0.2, 80)))
    assert (found.a, found.b, found.c) == pytest.approx((40, 0.7, 3), rel=0.1)


def test_bounds_hold_and_one_point_is_met() -> None:
    found = fit([0, 1, 2], [500, 400, 300])
    assert 0 <= found.a <= MOST_A
    assert 0 < found.b < 1
    assert 0 <= found.c <= MOST_C
    assert fit([3], [42]).at(3) == pytest.approx(42, abs=1e-3)


def test_the_mean_lies_between_the_ends() -> None:
    decay = Decay(80, 0.5, 1)
    assert decay.at(3) < decay.mean(2) < decay.at(2)
    assert decay.mean(2) == pytest.approx(80 * (0.5**3 - 0.5**2) / np.log(0.5) + 1, rel=1e-9)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1.0], [])])
def test_a_fit_needs_points(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        fit(x, y)
