"""Random changes of feature maps and of signals: what each does, and where it is lawful."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tuner.arrays import Floats
from tuner.augment.maps import augment
from tuner.augment.operations import active_operations, check_operations, check_signal_operations, of_inputs
from tuner.errors import StoreError

MAPS = ("flip", "crop", "shift")
SIGNALS = ("noise", "drift", "pool", "shift")


def changed(original: Floats, *ops: str, strength: float = 1.0, seed: int = 0) -> Floats:
    return augment(original, np.random.default_rng(seed), frozenset(ops), strength)


def maps(*shape: int) -> Floats:
    return np.random.default_rng(0).random(shape, dtype=np.float32) + 1


def signals(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize(("original", "ops"), [(maps(8, 3, 7, 7), MAPS), (signals(8, 3, 40), SIGNALS)])
def test_the_same_generator_gives_the_same_and_strength_zero_draws_nothing(
    original: Floats, ops: Sequence[str]
) -> None:
    moved = changed(original, *ops, strength=0.7, seed=4)
    np.testing.assert_array_equal(moved, changed(original, *ops, strength=0.7, seed=4))
    assert moved.dtype == np.float32
    assert not np.array_equal(moved, changed(original, *ops, strength=0.7, seed=5))
    generator = np.random.default_rng(0)
    assert augment(original, generator, frozenset(ops), 0.0) is original
    assert generator.random() == np.random.default_rng(0).random()


def test_a_flip_mirrors_about_half_of_the_samples_and_leaves_the_rest() -> None:
    original = maps(400, 2, 3, 5)
    moved = changed(original, "flip")
    mirrored = (moved == original[..., ::-1]).all(axis=(1, 2, 3))
    assert (mirrored | (moved == original).all(axis=(1, 2, 3))).all()
    assert 150 < mirrored.sum() < 250


def test_a_shift_moves_by_a_tenth_at_most_and_repeats_the_edge() -> None:
    original = maps(200, 2, 14, 20)
    seen = set()
    for before, after in zip(original, changed(original, "shift"), strict=True):
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
    seen = set()
    for before, after in zip(original, changed(original, "shift"), strict=True):
        padded = np.pad(before, ((0, 0), (4, 4)))
        seen.add(next(by for by in range(-4, 5) if np.array_equal(padded[:, 4 - by : 44 - by], after)))
    assert seen == set(range(-4, 5))
    with pytest.raises(StoreError, match="not changed by flip"):
        changed(original, "flip")


def test_a_crop_takes_whole_elements_of_a_box_that_keeps_at_least_the_share_asked_for() -> None:
    ramp = np.broadcast_to(np.arange(14, dtype=np.float32), (300, 1, 14, 14)).copy()
    rows = changed(ramp, "crop")[:, 0, 0]
    assert set(np.unique(rows)) == set(range(14))
    assert (np.diff(rows, axis=1) >= 0).all()
    reach = rows[:, -1] - rows[:, 0]
    assert reach.min() >= math.floor(13 * math.sqrt(0.5 * 3 / 4)) - 1
    assert len(set(reach)) > 3


def test_a_crop_of_inputs_is_enlarged_bilinearly_down_to_a_twelfth_of_the_area() -> None:
    assert of_inputs(frozenset(MAPS)) == {"flip", "resized-crop", "shift"}
    ramp = np.broadcast_to(np.arange(40, dtype=np.float32), (300, 1, 40, 40)).copy()
    for turned in (False, True):
        value = ramp.swapaxes(2, 3) if turned else ramp
        moved = changed(value, "resized-crop")
        rows = (moved.swapaxes(2, 3) if turned else moved)[:, 0, 7]
        steps = np.diff(rows, axis=1)[:, 10:-10]  # edges repeat where a box touches them
        np.testing.assert_allclose(steps, np.broadcast_to(steps[:, :1], steps.shape), atol=1e-4)
        assert 0.2 < steps.min() < 0.4
        assert 0.9 < steps.max() <= 1.001
        assert rows.min() >= 0
        assert rows.max() <= 39


def test_all_channels_of_a_sample_move_alike() -> None:
    moved = changed(np.repeat(maps(30, 1, 7, 7), 4, axis=1), *MAPS)
    np.testing.assert_allclose(moved, np.repeat(moved[:, :1], 4, axis=1), rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 8, 1, 1), (5, 8), (5, 8, 1)])
def test_pooled_maps_stay_as_they_are(shape: tuple[int, ...]) -> None:
    original = maps(*shape)
    assert changed(original, *MAPS) is original


def pooled(signal: Floats, size: int) -> Floats:
    """Return means of neighbours, each in the place of all that it is the mean of."""
    parts = [signal[:, at : at + size] for at in range(0, signal.shape[1], size)]
    return np.concatenate(
        [np.repeat(part.mean(axis=1, keepdims=True), part.shape[1], axis=1) for part in parts], axis=1
    )


def test_pooling_repeats_means_of_neighbours_and_keeps_the_length() -> None:
    original = signals(200, 2, 10)
    seen = set()
    for before, after in zip(original, changed(original, "pool"), strict=True):
        fits = [size for size in (1, 2, 3, 4) if np.allclose(after, pooled(before, size), atol=1e-6)]
        assert len(fits) == 1
        seen.update(fits)
    assert seen == {1, 2, 3, 4}
    as_map = signals(8, 3, 1, 40)  # of height one: it changes along its width
    np.testing.assert_array_equal(changed(as_map, "pool")[:, :, 0], changed(as_map[:, :, 0], "pool"))


def test_noise_is_of_up_to_a_fifth_of_the_deviation() -> None:
    original = np.zeros((400, 2, 200), np.float32)
    deviation = changed(original, "noise").std(axis=(1, 2))
    assert deviation.max() < 0.22
    assert 0.08 < deviation.mean() < 0.12
    assert changed(original, "noise", strength=0.5).std(axis=(1, 2)).max() < 0.11


def test_a_drift_is_slow_bounded_and_another_one_in_each_channel() -> None:
    drift = changed(np.zeros((100, 3, 101), np.float32), "drift")
    assert 0.4 < np.abs(drift).max() <= 0.5
    assert np.abs(np.diff(drift)).max() <= 1 / 25 + 1e-6
    np.testing.assert_allclose(np.diff(drift, n=2)[..., :23], 0, atol=1e-6)
    assert not np.allclose(drift[:, 0], drift[:, 1])


def test_noise_and_drift_act_on_inputs_and_never_on_stored_maps() -> None:
    assert active_operations(SIGNALS, cached=False) == set(SIGNALS)
    assert active_operations(SIGNALS, cached=True) == {"pool", "shift"}
    assert active_operations(("flip", "crop"), cached=True) == {"flip", "crop"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: changed(maps(1, 1, 2, 2), "brightness"), "'brightness' changes values of pixels"),
        (lambda: changed(maps(1, 1, 2, 2), "flop"), "did you mean 'flip'"),
        (lambda: changed(maps(1, 1, 2, 2), *MAPS, strength=1.5), r"\[0, 1\]"),
        (
            lambda: check_signal_operations(frozenset({"brightness"})),
            "can be shifted in time, not changed by brightness",
        ),
        (lambda: check_operations(frozenset({"noise"})), "'noise' changes values of pixels"),
        (lambda: check_operations(frozenset({"pool"})), "no augmentation 'pool'; there are crop, flip and shift"),
    ],
)
def test_what_does_not_suit_the_kind_is_refused_with_the_reason(asked: Callable[[], object], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        asked()
    check_signal_operations(frozenset(SIGNALS))
