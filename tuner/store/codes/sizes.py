"""Which records have scales of their own, and what these take; imports no array library."""

import math

#: Width whose records may have scales of their own, in bits.
WIDTH = 1
#: Fewer values to a channel are not worth two bytes.
LEAST_POSITIONS = 16
#: Bytes of a channel's own scales: its first value and its step.
SCALES = 2


def has_own_scales(bits: int, shape: tuple[int, ...]) -> bool:
    """Return whether records of a width and a shape `[C, ...]` have scales of their own."""
    return bits == WIDTH and math.prod(shape[1:]) >= LEAST_POSITIONS


def scale_bytes(bits: int, shape: tuple[int, ...]) -> int:
    """Return the size of a record's own scales; 0 where it has none."""
    return SCALES * shape[0] if has_own_scales(bits, shape) else 0
