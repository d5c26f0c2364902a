"""What is unlike the user's samples: as many as wanted are accepted, strangers are not, and nodes compute the same."""

import numpy as np
import pytest

from tuner.arrays import Array, Labels
from tuner.ridge.unknown import Familiar, left_out_distances, threshold

FEATURES = 64
CENTRES = np.random.default_rng(5).normal(0, 1, (9, FEATURES))
LOUD = np.random.default_rng(6).normal(0, 1, (4, FEATURES))


def drawn(seed: int, classes: range, each: int) -> tuple[Array, Labels]:
    """Return samples of some classes; a few directions, which all classes share, vary most."""
    draw, labels = np.random.default_rng(seed), np.repeat(np.array(classes), each)
    noise = draw.normal(0, 0.7, (len(labels), FEATURES)) + draw.normal(0, 1, (len(labels), 4)) @ LOUD
    return (CENTRES[labels] + noise).astype(np.float32), labels


@pytest.mark.parametrize("known", [None, drawn(3, range(6, 9), 40)])
def test_the_wanted_share_is_accepted_and_strangers_are_not(known: tuple[Array, Labels] | None) -> None:
    own, others, strangers = drawn(1, range(4), 25), drawn(2, range(4), 250), drawn(4, range(4, 6), 250)
    most = threshold(left_out_distances(own, known, np.arange(len(own[1])) % 5))
    familiar = Familiar.of(own, known)
    accepted, refused = (familiar.distances(features) <= most for features in (others[0], strangers[0]))
    assert 0.92 <= accepted.mean() <= 0.99
    assert refused.mean() <= 0.2
    assert (familiar.distances(own[0]) <= most).mean() >= accepted.mean()  # what was seen looks more familiar


def test_few_samples_accept_all_that_are_as_near_as_the_farthest() -> None:
    assert threshold(np.array([0.3, 0.1, 0.2])) == 0.3
    assert threshold(np.arange(100) / 100) == 0.95  # the 96th of 101 places


def test_a_single_sample_and_one_at_the_origin_have_distances() -> None:
    familiar = Familiar.of(drawn(1, range(1), 1))
    assert np.isfinite(familiar.distances(np.stack([familiar.centre, np.ones(FEATURES)]))).all()
