"""Random changes of feature maps: flips, shifts and crops, and where none is legal."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from tuner.augment.maps import augment
from tuner.errors import StoreError

Floats = npt.NDArray[np.float32]
ALL = frozenset({"flip", "crop", "shift"})


def maps(*shape: int) -> Floats:
    return np.random.default_rng(0).random(shape, dtype=np.float32) + 1


def test_the_same_generator_gives_the_same_maps() -> None:
    original = maps(8, 3, 7, 7)
    moved = augment(original, np.random.default_rng(4), ALL, 0.7)
    np.testing.assert_array_equal(moved, augment(original, np.random.default_rng(4), ALL, 0.7))
    assert moved.dtype == np.float32
    assert not np.array_equal(moved, augment(original, np.random.default_rng(5), ALL, 0.7))


def test_a_flip_mirrors_about_half_of_the_samples_and_leaves_the_rest() -> None:
    original = maps(400, 2, 3, 5)
    moved = augment(original, np.random.default_rng(0), frozenset({"flip"}), 1.0)
    mirrored = (moved == original[..., ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (moved == original).all(axis=(1, 2, 3))).all()
    assert 150 < mirrored.sum() < 250


def test_a_shift_moves_by_a_tenth_at_most_and_repeats_the_edge() -> None:
    original = maps(200, 2, 14, 20)
    moved = augment(original, np.random.default_rng(0), frozenset({"shift"}), 1.0)
    seen = set()
    for before, after in zip(original, moved, strict=True):
        padded = np.pad(before, ((0, 0), (1, 1), (2, 2)), "edge")
        shifts = [
            (down, right)
            for down in range(3)
            for right in range(5)
            if np.array_equal(padded[:, down : down + 14, right : right + 20], after)
        ]
        assert len(shifts) == 1
        seen.update(shifts)
    assert len(seen) == 15


def test_signals_shift_in_time_and_nothing_else() -> None:
    original = maps(50, 3, 40)
    moved = augment(original, np.random.default_rng(0), frozenset({"shift"}), 1.0)
    assert moved.shape == original.shape
    by = [next(d for d in range(-4, 5) if np.array_equal(np.pad(b, ((0, 0), (4, 4)))[:, 4 - d : 44 - d], a))
          for b, a in zip(original, moved, strict=True)]  # fmt: skip
    assert set(by) == set(range(-4, 5))
    with pytest.raises(StoreError, match="not changed by flip"):
        augment(original, np.random.default_rng(0), frozenset({"flip"}), 1.0)


def test_a_crop_takes_whole_elements_of_a_box_that_keeps_at_least_the_share_asked_for() -> None:
    ramp = np.broadcast_to(np.arange(14, dtype=np.float32), (300, 1, 14, 14)).copy()
    rows = augment(ramp, np.random.default_rng(0), frozenset({"crop"}), 1.0)[:, 0, 0]
    assert set(np.unique(rows)) == set(range(14))
    assert (np.diff(rows, axis=1) >= 0).all()
    reach = rows[:, -1] - rows[:, 0]
    assert reach.min() >= math.floor(13 * math.sqrt(0.5 * 3 / 4)) - 1
    assert len(set(reach)) > 3


def test_all_channels_of_a_sample_move_alike() -> None:
    original = np.repeat(maps(30, 1, 7, 7), 4, axis=1)
    moved = augment(original, np.random.default_rng(0), ALL, 1.0)
    np.testing.assert_allclose(moved, np.repeat(moved[:, :1], 4, axis=1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 8, 1, 1), (5, 8), (5, 8, 1)])
def test_pooled_maps_stay_as_they_are(shape: tuple[int, ...]) -> None:
    original = maps(*shape)
    assert augment(original, np.random.default_rng(0), ALL, 1.0) is original


def test_strength_zero_changes_nothing_and_draws_nothing() -> None:
    original, generator = maps(5, 8, 7, 7), np.random.default_rng(0)
    assert augment(original, generator, ALL, 0.0) is original
    assert generator.random() == np.random.default_rng(0).random()


def test_photometric_changes_are_refused_with_the_reason() -> None:
    with pytest.raises(StoreError, match="'brightness' changes values of pixels"):
        augment(maps(1, 1, 2, 2), np.random.default_rng(0), frozenset({"brightness"}), 1.0)
    with pytest.raises(StoreError, match="did you mean 'flip'"):
        augment(maps(1, 1, 2, 2), np.random.default_rng(0), frozenset({"flop"}), 1.0)
    with pytest.raises(StoreError, match=r"\[0, 1\]"):
        augment(maps(1, 1, 2, 2), np.random.default_rng(0), ALL, 1.5)
