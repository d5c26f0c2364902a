"""Codes of features: widths, scales, clipping, and what is refused."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import StoreError
from tuner.store.codec import Codec, calibrate, has_own_scales

Floats = npt.NDArray[np.float32]
SHAPES = [(5, 7, 7), (3, 3, 3), (16, 14, 14), (1, 1, 1), (11,), (13, 1, 1), (6, 9)]


def features(shape: tuple[int, ...], count: int = 9, seed: int = 0) -> Floats:
    generator = np.random.default_rng(seed)
    spread = np.exp(generator.normal(size=(shape[0], *[1] * (len(shape) - 1))))
    return (generator.normal(size=(count, *shape)) * spread + spread).astype(np.float32)


def channels(bound: Floats, shape: tuple[int, ...]) -> Floats:
    return bound.reshape(-1, *[1] * (len(shape) - 1))


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_round_trip_errs_by_at_most_half_a_step_inside_the_quantiles(shape: tuple[int, ...], bits: int) -> None:
    maps = features(shape)
    low, high = calibrate(maps, 0.05)
    back = Codec(bits, shape, low, high).decode(Codec(bits, shape, low, high).encode(maps))
    inside = np.clip(maps, channels(low, shape), channels(high, shape))
    half = (high - low) / (2**bits - 1) / 2
    assert (np.abs(back - inside) <= channels(half, shape) * (1 + 1e-4) + 1e-6).all()


def test_eight_bits_without_clipping_err_by_at_most_a_510th_of_the_range() -> None:
    maps = features((16, 14, 14))
    low, high = calibrate(maps, 0.0)
    np.testing.assert_array_equal(low, maps.min(axis=(0, 2, 3)))
    np.testing.assert_array_equal(high, maps.max(axis=(0, 2, 3)))
    back = Codec(8, (16, 14, 14), low, high).decode(Codec(8, (16, 14, 14), low, high).encode(maps))
    share = np.abs(back - maps) / channels(high - low, (16, 14, 14))
    assert share.max() <= (1 + 1e-4) / 510


@settings(max_examples=40)
@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), st.sampled_from([32, 16, 8, 4, 2, 1]), st.integers(0, 9)
)
def test_a_record_has_the_length_the_arithmetic_gives(c: int, h: int, w: int, bits: int, seed: int) -> None:
    maps = features((c, h, w), 3, seed)
    bounds = calibrate(maps) if bits <= 8 else (None, None)
    codec = Codec(bits, (c, h, w), *bounds)
    records = codec.encode(maps)
    assert records.shape == (3, codec.record_bytes)
    assert codec.record_bytes == -(-c * h * w * bits // 8)
    assert codec.decode(records).shape == maps.shape


@settings(max_examples=40)
@given(st.sampled_from(SHAPES), st.sampled_from([4, 2, 1]), st.integers(0, 99))
def test_narrow_codes_are_the_requantised_master(shape: tuple[int, ...], bits: int, seed: int) -> None:
    maps = features(shape, 20, seed)
    low, high = calibrate(maps)
    master = Codec(8, shape, low, high).encode(maps)
    for per_sample in {False, has_own_scales(bits, shape)}:
        codec = Codec(bits, shape, low, high, per_sample)
        np.testing.assert_array_equal(codec.encode(maps), codec.narrow(master))


@pytest.mark.parametrize("bits", [4, 2, 1])
def test_each_master_code_goes_to_its_nearest_level(bits: int) -> None:
    codes = np.arange(256, dtype=np.uint8)[None]
    ones = np.ones(256, np.float32)
    codec = Codec(bits, (256,), ones * 0, ones)
    levels = codec.decode(codec.narrow(codes))[0] * (2**bits - 1)
    np.testing.assert_allclose(levels, np.round(np.arange(256) * (2**bits - 1) / 255), atol=1e-5)


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
def test_a_constant_channel_codes_zero_and_decodes_to_its_value(bits: int) -> None:
    maps = features((4, 6, 6))
    maps[:, 2] = -1.25
    low, high = calibrate(maps)
    codec = Codec(bits, (4, 6, 6), low, high)
    assert (codec.decode(codec.encode(maps))[:, 2] == -1.25).all()
    assert not Codec(8, (4, 6, 6), low, high).encode(maps)[:, 72:108].any()
    assert (codec.decode(codec.encode(maps + 9))[:, 2] == -1.25).all()


def test_one_bit_of_a_sample_decodes_to_the_means_below_and_above_its_own_mean() -> None:
    maps = features((16, 7, 7), 5) + np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1)
    low, high = calibrate(maps, 0.0)
    codec = Codec(1, (16, 7, 7), low, high, per_sample=True)
    back = codec.decode(codec.encode(maps))
    rows = maps.reshape(5, 16, -1)
    above = rows > rows.mean(axis=2, keepdims=True)
    means = np.where(above, *(rows.mean(axis=2, keepdims=True, where=side) for side in (above, ~above)))
    step = channels(high - low, (16, 7, 7)) / 255
    off = np.abs(back - means.reshape(maps.shape)) / step
    assert np.quantile(off, 0.95) < 1.5  # a value next to the mean may be on the other side of it in 8-bit codes


def test_scales_of_a_samples_own_err_less_where_samples_differ() -> None:
    shape = (16, 7, 7)
    maps = features(shape, 30)
    maps *= np.random.default_rng(1).uniform(0.2, 2, (30, 16, 1, 1)).astype(np.float32)
    low, high = calibrate(maps)
    errors = []
    for per_sample in (False, True):
        codec = Codec(1, shape, low, high, per_sample)
        errors.append(float(((codec.decode(codec.encode(maps)) - maps) ** 2).sum()))
    assert errors[1] < errors[0] / 2
    assert codec.record_bytes == -(-16 * 49 // 8) + 2 * 16


def test_a_channel_that_is_constant_in_one_sample_decodes_to_its_value() -> None:
    maps = features((4, 6, 6), 20)
    low, high = calibrate(maps)
    maps[3, 2] = value = (low[2] + high[2]) / 2
    codec = Codec(1, (4, 6, 6), low, high, per_sample=True)
    assert np.abs(codec.decode(codec.encode(maps))[3, 2] - value).max() <= (high[2] - low[2]) / 255


def test_plain_numbers_come_back_as_they_are_and_values_beyond_the_range_are_clamped() -> None:
    maps = features((3, 5, 5)) * 100
    for bits, kept in ((32, maps), (16, maps.astype(np.float16).astype(np.float32))):
        np.testing.assert_array_equal(Codec(bits, (3, 5, 5)).decode(Codec(bits, (3, 5, 5)).encode(maps)), kept)
    assert Codec(16, (1,)).decode(Codec(16, (1,)).encode(np.array([[1e6]], np.float32))) == 65504
    large = np.full((2, 3, 4), 1e30, np.float32)  # not mistaken for infinite
    assert (Codec(32, (3, 4)).decode(Codec(32, (3, 4)).encode(large)) == large).all()
    codec = Codec(8, (2,), np.zeros(2, np.float32), np.ones(2, np.float32))
    np.testing.assert_array_equal(codec.encode(np.array([[-3e38, 3e38]], np.float32)), [[0, 255]])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("bits", [32, 16, 8, 2])
def test_values_that_are_not_finite_are_refused(bits: int, value: float) -> None:
    maps = features((3, 5, 5), 20)
    codec = Codec(bits, (3, 5, 5), *(calibrate(maps) if bits <= 8 else ()))
    maps[17, 2, 4, 4] = value
    with pytest.raises(StoreError, match="infinite or undefined"):
        codec.encode(maps)
    with pytest.raises(StoreError, match="infinite or undefined"):
        calibrate(maps)


@pytest.mark.parametrize("quantile", [0.0, 0.01, 0.1, 0.37, 0.49])
def test_quantiles_are_those_of_a_full_sort(quantile: float) -> None:
    maps = features((6, 7, 5), 23)
    rows = maps.astype(np.float64).transpose(1, 0, 2, 3).reshape(6, -1)
    low, high = calibrate(maps, quantile)
    np.testing.assert_allclose(low, np.quantile(rows, quantile, axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(high, np.quantile(rows, 1 - quantile, axis=1), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(*calibrate(np.array([[1, 2, 3]], np.float32), quantile))  # one pooled sample


def test_decoding_fills_the_array_it_is_given() -> None:
    maps = features((3, 5, 5))
    codec = Codec(4, (3, 5, 5), *calibrate(maps))
    out = np.full_like(maps, 7)
    assert codec.decode(codec.encode(maps), out) is out
    np.testing.assert_array_equal(out, codec.decode(codec.encode(maps)))
    with pytest.raises(StoreError, match="contiguous"):
        codec.decode(codec.encode(maps), out[::2])


@pytest.mark.parametrize("per_sample", [False, True])
def test_batches_of_any_size_decode_alike(*, per_sample: bool) -> None:
    maps = features((96, 14, 14), 21)
    codec = Codec(1, (96, 14, 14), *calibrate(maps), per_sample)
    whole = codec.decode(codec.encode(maps))
    np.testing.assert_array_equal(whole[3:4], codec.decode(codec.encode(maps[3:4])))
    assert codec.decode(codec.encode(maps[:0])).shape == (0, 96, 14, 14)


def test_what_a_codec_cannot_be_is_refused() -> None:
    ones = np.ones(3, np.float32)
    for bad in (
        lambda: Codec(3, (3,), ones, ones),
        lambda: Codec(8, (3,)),
        lambda: Codec(32, (3,), ones, ones),
        lambda: Codec(8, (4,), ones, ones),
        lambda: Codec(8, (3,), ones, ones - 1),
        lambda: Codec(8, (3,), ones, ones * np.float32("inf")),
        lambda: Codec(8, ()),
        lambda: Codec(8, (3,), ones, ones).encode(np.ones((2, 4), np.float32)),
        lambda: Codec(8, (3,), ones, ones).decode(np.ones((2, 4), np.uint8)),
        lambda: Codec(16, (3,)).narrow(np.ones((2, 3), np.uint8)),
        lambda: Codec(4, (3,), ones, ones).narrow(np.ones((2, 4), np.uint8)),
        lambda: Codec(1, (3,), ones, ones, per_sample=True),
        lambda: Codec(4, (3, 9, 9), ones, ones, per_sample=True),
        lambda: calibrate(np.ones((2, 3), np.float32), 0.5),
        lambda: calibrate(np.ones((0, 3), np.float32)),
    ):
        with pytest.raises(StoreError):
            bad()


def test_scales_have_a_name_of_their_own() -> None:
    ones = np.ones(3, np.float32)
    assert Codec(32, (3,)).scales == ""
    assert Codec(8, (3,), ones * 0, ones).scales != Codec(8, (3,), ones, ones).scales
    assert Codec(8, (3,), ones * 0, ones).scales == Codec(1, (3,), ones * 0, ones).scales
