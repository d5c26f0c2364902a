"""Shifts and masks of log-mel patches and of their maps."""

import numpy as np
import pytest

from tuner.arrays import Floats
from tuner.augment.operations import active_operations, check_operations
from tuner.errors import StoreError
from tuner_audio.kind import AUDIO


def maps(count: int = 40, shape: tuple[int, ...] = (3, 20, 30)) -> Floats:
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


def changed(op: str, strength: float = 1.0, given: Floats | None = None) -> Floats:
    return AUDIO.augment(maps() if given is None else given, np.random.default_rng(1), frozenset({op}), strength)


@pytest.mark.parametrize(("op", "axis"), [("time-mask", 3), ("frequency-mask", 2)])
def test_a_mask_gives_one_span_the_mean_of_each_channel(op: str, axis: int) -> None:
    before, after = maps(), changed(op)
    means = np.broadcast_to(before.mean(axis=(2, 3), keepdims=True), before.shape)
    differs = (before != after).any(axis=1)  # [n, bands, frames]
    widths = differs.any(axis=1 if axis == 3 else 2).sum(axis=1)
    assert widths.max() == round(0.2 * before.shape[axis])
    assert widths.min() == 0
    assert np.array_equal(after[before != after], means[before != after])
    spans = differs.any(axis=1 if axis == 3 else 2)
    assert (np.abs(np.diff(spans.astype(int), axis=1, prepend=0, append=0)).sum(axis=1) <= 2).all()


def test_a_shift_moves_all_channels_in_time_and_repeats_the_edge() -> None:
    ramp = np.broadcast_to(np.arange(30, dtype=np.float32), (40, 3, 20, 30)).copy()
    after = changed("time-shift", given=ramp)
    by = after[:, 0, 0, 10] - 10
    assert set(by.tolist()) == set(range(-3, 4))
    expected = np.clip(np.arange(30) + by[:, None], 0, 29)[:, None, None]
    assert np.array_equal(after, np.broadcast_to(expected, after.shape))


def test_nothing_happens_without_strength_or_without_positions() -> None:
    assert np.array_equal(changed("time-mask", 0.0), maps())
    pooled = maps(shape=(5, 1, 1))
    assert np.array_equal(changed("time-shift", given=pooled), pooled)


def test_the_same_generator_gives_the_same_maps_and_all_act_on_stored_ones() -> None:
    ops = frozenset({"time-shift", "time-mask", "frequency-mask"})
    assert active_operations(ops, cached=True) == ops
    first, second = (AUDIO.augment(maps(), np.random.default_rng(3), ops, 0.5) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.dtype == np.float32


def test_operations_of_pictures_are_refused_for_sounds_and_the_other_way_round() -> None:
    with pytest.raises(StoreError, match="sounds cannot be changed by 'crop'"):
        AUDIO.check_operations(frozenset({"crop"}))
    with pytest.raises(StoreError, match="no augmentation 'time-mask'"):
        check_operations(frozenset({"time-mask"}))
