"""Conversion of a feature map to the bytes of a record, and back (Cache-and-Reuse, equations of C and D).

A code of `b` bits is `round((x - low) * (2**b - 1) / (high - low))` clamped to `[0, 2**b - 1]`, where `low` and `high`
are a channel's k and 1-k quantiles over a calibration set. 8-bit codes are the master: 4, 2 and 1 bit codes are
*defined* as requantised 8-bit codes, so that a narrower record never needs another forward pass. 15, 3 and 1 divide 255
with odd quotients, hence the two roundings together still err by at most half a step of the narrower code. Codes of 1
bit may have scales of each sample's own in front of them instead: a code then says whether a value is above its
channel's mean in that sample, and decodes to the mean of the values on its side (absolute moment block truncation
coding, Lema and Mitchell 1984), as scales of a whole calibration set leave little of one bit.

Codes are packed in planes: with `p = 8 // bits` codes to a byte, byte `j` of a record holds the codes of elements
`j, j + P, j + 2 * P, ...` (`P = ceil(elements / p)`), the first in the lowest bits. Unpacking is then a mask over whole
contiguous rows and never a gather. The shift is left to the scale: a plane's step is divided by its bit's weight.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tuner.arrays import Codes, Floats
from tuner.errors import StoreError

WIDTHS = (32, 16, 8, 4, 2, 1)
_MASTER_LEVELS = 255
_BLOCK_ELEMENTS = 301_056  # 16 maps of 96×14×14: passes over a block stay in cache, and numpy calls rare
_HALF_MAX = float(np.finfo(np.float16).max)
_PLAIN: dict[int, npt.DTypeLike] = {32: np.float32, 16: np.float16}
#: Width whose records may have scales of their own, in bits; and from how many values to a channel on.
_OWN_SCALES_WIDTH, _LEAST_POSITIONS = 1, 16
#: Bytes of a channel's own scales: its first value and its step.
_SCALES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """Converts the features of one cut point to fixed-size records, and back.

    Attributes:
        bits: 32 (float32), 16 (float16, clamped to its range), or 8, 4, 2, 1 (codes).
        shape: Shape of one sample's features, channels first: `[C, ...]`.
        low: Values of code 0, float32 `[C]`; `None` at 16 and 32 bits.
        high: Values of the largest code, float32 `[C]`; `None` at 16 and 32 bits.
        per_sample: Whether each record begins with scales of its own, of which `low` and `high` are the frame.
    """

    bits: int
    shape: tuple[int, ...]
    low: Floats | None = None
    high: Floats | None = None
    per_sample: bool = False
    _tables: list[tuple[Floats, Floats]] = field(
        default_factory=list, init=False, repr=False
    )  # made by the first decode

    def __post_init__(self) -> None:
        if self.bits not in WIDTHS:
            raise StoreError(f"records must have 32, 16, 8, 4, 2 or 1 bits, got {self.bits}")
        if not self.shape or min(self.shape) < 1:
            raise StoreError(f"features must have a shape [channels, ...] of positive sizes, got {list(self.shape)}")
        if self.per_sample and not has_own_scales(self.bits, self.shape):
            raise StoreError(f"records of {self.bits} bits and shape {list(self.shape)} have no scales of their own")
        if self.bits in _PLAIN:
            if self.low is not None or self.high is not None:
                raise StoreError(f"{self.bits}-bit records hold plain numbers: leave low and high out")
            return
        if self.low is None or self.high is None:
            raise StoreError(f"{self.bits}-bit records need low and high per channel: calibrate() returns them")
        for name in ("low", "high"):
            bound = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if bound.shape != (self.shape[0],):
                raise StoreError(f"{name} must have one value per channel [{self.shape[0]}], got {list(bound.shape)}")
            object.__setattr__(self, name, bound)
        with np.errstate(over="ignore", invalid="ignore"):
            span = self.high - self.low
        if not (np.isfinite(span).all() and (span >= 0).all()):
            raise StoreError("low and high must be finite, in order, and closer than the largest float32")

    @property
    def record_bytes(self) -> int:
        """Size of one record: `ceil(C·H·W·bits / 8)`, and two bytes a channel for scales of its own."""
        return self.scale_bytes + -(-math.prod(self.shape) * self.bits // 8)

    @property
    def scale_bytes(self) -> int:
        """Size of a record's own scales; 0 without any."""
        return _SCALES * self.shape[0] if self.per_sample else 0

    @property
    def scales(self) -> str:
        """Hash of low and high, which names the scales in a store key; empty at 16 and 32 bits."""
        if self.low is None or self.high is None:
            return ""
        return hashlib.sha256(self.low.astype("<f4").tobytes() + self.high.astype("<f4").tobytes()).hexdigest()[:32]

    def encode(self, features: npt.NDArray[np.floating]) -> Codes:
        """Code features, float32 `[n, *shape]`, as uint8 `[n, record_bytes]`.

        Raises:
            StoreError: A shape differs, or a value is infinite or not a number.
        """
        if features.shape[1:] != self.shape:
            raise StoreError(f"features must have shape [n, {_sizes(self.shape)}], got [{_sizes(features.shape)}]")
        flat = np.ascontiguousarray(features, dtype=np.float32).reshape(len(features), math.prod(self.shape))
        if self.bits in _PLAIN:
            return self._encode_plain(flat)
        return self.narrow(self._encode_master(flat))

    def narrow(self, records8: Codes) -> Codes:
        """Make records of 8-bit ones, uint8 `[n, C·H·W]`, of the same scales: what `encode` makes of the features.

        Raises:
            StoreError: The records are of 16 or 32 bits, or 8-bit records of another shape.
        """
        elements = math.prod(self.shape)
        if self.bits in _PLAIN:
            raise StoreError(f"8-bit records can be narrowed to 4, 2 or 1 bits, got {self.bits}")
        if records8.dtype != np.uint8 or records8.shape[1:] != (elements,):
            raise StoreError(f"8-bit records are uint8 [n, {elements}], got {records8.dtype} {list(records8.shape)}")
        if self.bits == 8:  # noqa: PLR2004 - the master's width
            return records8
        records = np.zeros((len(records8), self.record_bytes), np.uint8)
        for start, stop in _blocks(records8):
            self._pack(records8[start:stop], records[start:stop])
        return records

    def decode(self, records: Codes, out: Floats | None = None) -> Floats:
        """Restore features, float32 `[n, *shape]`, in `out` where it is given.

        They are `low + code * (high - low) / (2**bits - 1)`; a record's own scales first make 8-bit codes of its codes.

        Raises:
            StoreError: A shape or a type differs.
        """
        if records.dtype != np.uint8 or records.ndim != 2 or records.shape[1] != self.record_bytes:  # noqa: PLR2004 - [n, bytes]
            raise StoreError(f"records are uint8 [n, {self.record_bytes}], got {records.dtype} {list(records.shape)}")
        shape = (len(records), *self.shape)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise StoreError(f"out must be a contiguous float32 array [{_sizes(shape)}]")
        flat = out.reshape(len(records), math.prod(self.shape))
        if self.bits in _PLAIN:
            np.copyto(flat, np.ascontiguousarray(records).view(_PLAIN[self.bits]))
        else:
            self._decode_codes(records, flat)
        return out

    def _encode_plain(self, flat: Floats) -> Codes:
        for start, stop in _blocks(flat):
            _refuse_unfinite(flat[start:stop])
        if self.bits == 32:  # noqa: PLR2004 - float32 as it is
            return flat.copy().view(np.uint8)
        return np.clip(flat, -_HALF_MAX, _HALF_MAX).astype(np.float16).view(np.uint8)

    def _encode_master(self, flat: Floats) -> Codes:
        low, span = self._bounds()
        with np.errstate(divide="ignore", over="ignore"):
            per_unit = (_MASTER_LEVELS / span.astype(np.float64)).astype(np.float32)
        per_unit[~np.isfinite(per_unit)] = 0.0  # a constant channel: code 0, decoded as low
        offsets, factors = self._spread(low), self._spread(per_unit)
        codes = np.empty(flat.shape, np.uint8)
        for start, stop in _blocks(flat):
            block = flat[start:stop]
            _refuse_unfinite(block)
            with np.errstate(over="ignore", invalid="ignore"):
                levels = block - offsets
                levels *= factors
            np.clip(levels, 0.0, float(_MASTER_LEVELS), out=levels)
            np.rint(levels, out=levels)
            codes[start:stop] = levels
        return codes

    def _decode_codes(self, records: Codes, flat: Floats) -> None:
        if not self._tables:
            self._tables.append(self._decoding_tables())
        steps, offsets = self._tables[0]
        planes, packed = 8 // self.bits, records.shape[1] - self.scale_bytes
        shifts = np.arange(planes, dtype=np.uint8)[:, None] * np.uint8(self.bits)
        masks = np.uint8(2**self.bits - 1) << shifts
        elements = flat.shape[1]
        buffer = np.empty((max(1, min(len(flat), _BLOCK_ELEMENTS // elements)), planes, packed), np.uint8)
        for start, stop in _blocks(flat):
            codes, block = buffer[: stop - start], flat[start:stop]
            np.bitwise_and(records[start:stop, None, self.scale_bytes :], masks, out=codes)
            flat_codes = codes.reshape(stop - start, planes * packed)[:, :elements]
            if self.per_sample:
                codes >>= shifts
                flat_codes = _widened(flat_codes, records[start:stop, : self.scale_bytes])
            np.copyto(block, flat_codes)
            block *= steps
            block += offsets

    def _pack(self, records8: Codes, records: Codes) -> None:
        """Write the narrow codes of 8-bit records, and scales of their own, into records of zeros."""
        if self.per_sample:
            codes, records[:, : self.scale_bytes] = _narrowed(records8, self.shape[0])
        else:
            ratio = _MASTER_LEVELS // (2**self.bits - 1)  # 17, 85 or 255: odd, so no code lies halfway
            codes = records8 // np.uint8(ratio)
            codes += records8 - codes * np.uint8(ratio) > ratio // 2
        packed = records[:, self.scale_bytes :]
        width = packed.shape[1]
        for plane in range(8 // self.bits):
            part = codes[:, plane * width : (plane + 1) * width]
            packed[:, : part.shape[1]] |= part << np.uint8(plane * self.bits)

    def _decoding_tables(self) -> tuple[Floats, Floats]:
        """Return the factor and the summand of each element; a plane's shift is part of its step."""
        low, span = self._bounds()
        if self.per_sample:
            return self._spread(span / np.float32(_MASTER_LEVELS)), self._spread(low)
        steps = self._spread(span / np.float32(2**self.bits - 1))
        for plane in range(8 // self.bits):
            steps[plane * self.record_bytes : (plane + 1) * self.record_bytes] *= np.float32(
                2.0 ** -(plane * self.bits)
            )
        return steps, self._spread(low)

    def _bounds(self) -> tuple[Floats, Floats]:
        if self.low is None or self.high is None:
            raise StoreError(f"{self.bits}-bit records have no scales: they hold plain numbers")
        return self.low, self.high - self.low

    def _spread(self, per_channel: Floats) -> Floats:
        """Return one value per element: a flat operand runs twice as fast as broadcasting short rows."""
        rows = np.broadcast_to(per_channel[:, None], (len(per_channel), math.prod(self.shape[1:])))
        return np.array(rows).reshape(-1)


def _blocks(flat: npt.NDArray[np.generic]) -> Iterator[tuple[int, int]]:
    size = max(1, _BLOCK_ELEMENTS // flat.shape[1])
    for start in range(0, len(flat), size):
        yield start, min(start + size, len(flat))


def _sizes(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)


def has_own_scales(bits: int, shape: tuple[int, ...]) -> bool:
    """Return whether records of a width and a shape `[C, ...]` have scales of their own."""
    return bits == _OWN_SCALES_WIDTH and math.prod(shape[1:]) >= _LEAST_POSITIONS


def scale_bytes(bits: int, shape: tuple[int, ...]) -> int:
    """Return the size of a record's own scales; 0 where it has none."""
    return _SCALES * shape[0] if has_own_scales(bits, shape) else 0


def _narrowed(records8: Codes, channels: int) -> tuple[Codes, Codes]:
    """Return the bits of 8-bit records, uint8 `[n, C·H·W]`, and what 0 decodes to and what 1 adds, uint8 `[n, 2·C]`."""
    values = records8.reshape(len(records8), channels, -1)
    positions, totals = values.shape[2], values.sum(axis=2, dtype=np.int64)
    above = values > (totals // positions)[:, :, None]  # of whole numbers, above the mean is above its floor
    counts = np.count_nonzero(above, axis=2)
    sums = (values * above).sum(axis=2, dtype=np.int64)
    firsts = np.rint((totals - sums) / (positions - counts))
    lasts = np.where(counts > 0, np.rint(sums / np.maximum(counts, 1)), firsts)
    scales = np.concatenate([firsts, lasts - firsts], axis=1).astype(np.uint8)
    return above.astype(np.uint8).reshape(records8.shape), scales


def _widened(codes: Codes, scales: Codes) -> Codes:
    """Return 8-bit records, uint8 `[n, C·H·W]`, of bits and scales as `narrowed` returns them."""
    firsts, steps = scales.reshape(len(scales), 2, -1, 1).swapaxes(0, 1)
    records8 = codes.reshape(*firsts.shape[:2], -1) * steps
    records8 += firsts
    return records8.reshape(codes.shape)


def calibrate(features: npt.NDArray[np.floating], quantile: float = 0.01) -> tuple[Floats, Floats]:
    """Return two quantiles of each channel over samples and positions, by selection, interpolated linearly.

    Args:
        features: float32 `[n, C, ...]`, the calibration set.
        quantile: Share k clipped at each end, in `[0, 0.5)`; 0 gives minimum and maximum.

    Returns:
        float32 `[C]` and `[C]`: the k and the 1-k quantile.
    """
    if not 0.0 <= quantile < 0.5:  # noqa: PLR2004 - beyond the median the two quantiles change places
        raise StoreError(f"the clip quantile must be in [0, 0.5), got {quantile}")
    if features.ndim < 2 or features.size == 0:  # noqa: PLR2004 - [n, C, ...]
        raise StoreError(f"calibration features must have shape [n, C, ...], got {list(features.shape)}")
    channels = features.shape[1]
    low, high = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for channel in range(channels):
        values = np.array(features[:, channel], dtype=np.float32).reshape(-1)
        _refuse_unfinite(values)
        last = len(values) - 1
        below = math.floor(quantile * last)
        above = min(below + 1, last)
        values.partition(sorted({below, above, last - above, last - below}))
        share = quantile * last - below
        low[channel] = _between(values[below], values[above], share)
        high[channel] = _between(values[last - below], values[last - above], share)
    return low, high


def _refuse_unfinite(values: Floats) -> None:
    """Check that every value is finite, in one pass: a sum of squares is finite only if every value is.

    Where the sum overflowed, the values are looked at again.
    """
    line = values.reshape(-1)
    with np.errstate(all="ignore"):
        squares = np.dot(line, line)
    if not np.isfinite(squares) and not np.isfinite(line).all():
        raise StoreError("features hold infinite or undefined values: check the prefix's weights and its input")


def _between(first: np.float32, second: np.float32, share: float) -> np.float32:
    return np.float32(float(first) + share * (float(second) - float(first)))
