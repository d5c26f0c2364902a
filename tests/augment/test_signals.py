"""What noise, drift, pooling and shift do to a signal, and where they are lawful."""

import numpy as np
import numpy.typing as npt
import pytest

from tuner.augment.maps import augment
from tuner.augment.operations import active_operations, check_operations, check_signal_operations
from tuner.errors import StoreError

Floats = npt.NDArray[np.float32]


def changed(original: Floats, *ops: str, strength: float = 1.0, seed: int = 0) -> Floats:
    return augment(original, np.random.default_rng(seed), frozenset(ops), strength)


def signals(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def test_pooling_repeats_means_of_neighbours_and_keeps_the_length() -> None:
    original = signals(200, 2, 10)
    pooled = changed(original, "pool")
    assert pooled.shape == original.shape
    seen = set()
    for before, after in zip(original, pooled, strict=True):
        fits = [
            size
            for size in (1, 2, 3, 4)
            if np.allclose(
                after, np.concatenate([np.repeat(before[:, at : at + size].mean(axis=1, keepdims=True),
                                                 min(size, 10 - at), axis=1) for at in range(0, 10, size)], axis=1),
                atol=1e-6,
            )
        ]  # fmt: skip
        assert len(fits) == 1
        seen.update(fits)
    assert seen == {1, 2, 3, 4}


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


def test_all_of_them_together_are_drawn_from_the_trials_own_generator() -> None:
    original, ops = signals(8, 3, 40), ("noise", "drift", "pool", "shift")
    altered = changed(original, *ops)
    np.testing.assert_array_equal(altered, changed(original, *ops))
    assert altered.dtype == np.float32
    assert not np.array_equal(altered, changed(original, *ops, seed=1))
    assert changed(original, *ops, strength=0.0) is original


def test_a_map_of_height_one_changes_along_its_width() -> None:
    original = signals(8, 3, 1, 40)
    np.testing.assert_array_equal(changed(original, "pool")[:, :, 0], changed(original[:, :, 0], "pool"))


def test_noise_and_drift_act_on_inputs_and_never_on_stored_maps() -> None:
    ops = ("noise", "drift", "pool", "shift")
    assert active_operations(ops, cached=False) == set(ops)
    assert active_operations(ops, cached=True) == {"pool", "shift"}
    assert active_operations(("flip", "crop"), cached=True) == {"flip", "crop"}


def test_what_does_not_suit_the_kind_is_refused_with_the_reason() -> None:
    check_signal_operations(frozenset({"noise", "drift", "pool", "shift"}))
    with pytest.raises(StoreError, match="can be shifted in time, not changed by brightness"):
        check_signal_operations(frozenset({"brightness"}))
    with pytest.raises(StoreError, match="'noise' changes values of pixels"):
        check_operations(frozenset({"noise"}))
    with pytest.raises(StoreError, match="no augmentation 'pool'; there are crop, flip and shift"):
        check_operations(frozenset({"pool"}))
