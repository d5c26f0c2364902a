"""Tensors of a bundle's safetensors files: of numeric types, finite, and no larger than their file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from tuner.arrays import Array
from tuner.errors import BundleError
from tuner.reading import open_regular
from tuner.untrusted import reason_of

#: Largest header: its names, types and shapes are read before anything else is known of the file.
MOST_HEADER_BYTES = 4 * 10**6
_KINDS = frozenset("biuf")


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file: a `BundleError` of one line where it cannot be read, or lacks what is asked for."""
    try:
        with open_regular(path) as file:
            header_bytes = int.from_bytes(file.read(8), "little")
        if header_bytes > MOST_HEADER_BYTES:
            raise BundleError(
                f"{path} declares a header of {header_bytes:,} bytes, more than {MOST_HEADER_BYTES:,}: export again"
            )
        with safe_open(path, framework="numpy") as tensors:
            yield tensors
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({reason_of(error)}): copy the whole bundle again") from None
    except (SafetensorError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise BundleError(f"{path} cannot be read ({error}): copy the whole bundle again") from None


def read_tensors(path: Path, names: tuple[str, ...] | None = None, *, finite: bool = True) -> dict[str, Array]:
    """Return some tensors, or all, by name; those of parts that do not train need not be finite.

    Raises:
        BundleError: One cannot be read, is missing, of no numeric type, or not finite.
    """
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in (file.keys() if names is None else names)}
    for name, value in tensors.items():
        if value.dtype.kind not in _KINDS or (finite and not np.isfinite(value).all()):
            raise BundleError(f"{path}: {name} must be finite numbers, has type {value.dtype}: export again")
    return tensors
