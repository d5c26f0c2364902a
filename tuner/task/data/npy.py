"""One array in numpy's own format, whose header is believed only as far as its bytes go.

A header of a hundred bytes may ask for a terabyte: shape and type are compared with the size of the data, and with the
memory that is left, before anything is allocated.
"""

import math
import os
from pathlib import Path
from typing import IO

import numpy as np

from tuner.arrays import Array
from tuner.errors import TaskError
from tuner.machine.control_group import available_memory
from tuner.reading import open_regular
from tuner.units import format_bytes

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path) -> Array:
    """Read one array file, such as a recording [channels, time]; a `TaskError` where it is missing or no ``.npy``."""
    try:
        with open_regular(path) as file:
            return read_array(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, EOFError) as error:
        reason = str(error)
    raise TaskError(f"{path}: cannot be read as .npy ({reason}): write it with numpy.save")


def read_array(stream: IO[bytes], size: int) -> Array:
    """Read an array of plain values from the begin of a stream of so many bytes, which can be rewound.

    Raises:
        ValueError: The stream is no such array, is cut short, or does not fit into memory.
    """
    shape, dtype = _header(stream)
    values, held = math.prod(shape), size - stream.tell()
    if dtype.hasobject or min(shape, default=0) < 0 or (values and not dtype.itemsize):
        raise ValueError(f"it must hold plain values, but its header says {dtype} {list(shape)}")
    if values * dtype.itemsize > held:
        wanted = format_bytes(values * dtype.itemsize)
        raise ValueError(f"its header says {dtype} {list(shape)}, {wanted}, but only {format_bytes(held)} follow")
    if values * dtype.itemsize > (left := available_memory()):
        raise ValueError(f"{format_bytes(values * dtype.itemsize)}, more than the {format_bytes(left)} of free memory")
    stream.seek(0)
    array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is for structured arrays")
    try:
        shape, _, dtype = _HEADERS[version](stream)
    except Exception:  # noqa: BLE001 - a header is Python, and raises what its parser raises
        raise ValueError("its header cannot be read") from None
    return shape, dtype
