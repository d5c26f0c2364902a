"""Corrections learned from a few trials, and intervals that hold as often as they say."""

import math

import numpy as np
import pytest

from tuner.search.estimate.calibration import Calibration, Errors, Observation

NOISE = 0.05


def errors(kind: str = "a") -> Errors:
    return {"part": 0.2, kind: 0.1}


def test_before_any_trial_nothing_is_corrected_and_the_prior_is_the_spread() -> None:
    calibration = Calibration(NOISE)
    calibration.fit([])
    assert calibration.factor(errors()) == 1.0
    deviation = math.sqrt(0.2**2 + 0.1**2 + NOISE**2)
    assert 1.6 * deviation < math.log(calibration.spread(errors(), 0.95)) < 2.2 * deviation  # Student's t is wider


def test_a_trial_moves_its_own_kind_most() -> None:
    calibration = Calibration(NOISE)
    calibration.fit([Observation(errors("a"), math.log(1.5))])
    own, other = calibration.factor(errors("a")), calibration.factor(errors("b"))
    assert 1.0 < other < own < 1.5
    assert calibration.spread(errors("a"), 0.95) < calibration.spread(errors("b"), 0.95)


def test_many_trials_outweigh_the_prior() -> None:
    calibration = Calibration(NOISE)
    calibration.fit([Observation(errors(), math.log(2.0))] * 30)
    assert calibration.factor(errors()) == pytest.approx(2.0, rel=0.01)


def test_one_busy_moment_moves_the_correction_little() -> None:
    calibration = Calibration(NOISE)
    calibration.fit([*[Observation(errors(), 0.0)] * 9, Observation(errors(), math.log(10.0))])
    assert calibration.factor(errors()) < 1.1


@pytest.mark.parametrize("level", [0.75, 0.975])
def test_intervals_hold_as_often_as_they_say(level: float) -> None:
    draw, within = np.random.default_rng(0), 0
    for _ in range(400):
        true = {name: draw.normal(0, spread) for name, spread in (("part", 0.2), ("a", 0.1), ("b", 0.1))}
        seen = [
            Observation(errors(kind), float(true["part"] + true[kind] + draw.normal(0, NOISE))) for kind in "aab" * 2
        ]
        calibration = Calibration(NOISE)
        calibration.fit(seen)
        measured = math.exp(true["part"] + true["b"] + draw.normal(0, NOISE))
        within += measured <= calibration.factor(errors("b")) * calibration.spread(errors("b"), level)
    assert within / 400 == pytest.approx(level, abs=0.03)
