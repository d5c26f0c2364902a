"""This process's memory, as the kernel counts it."""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
#: Freed memory that a process may keep where a step runs many times: what is returned is faulted in anew.
KEPT_BYTES = 16_000_000
#: A block of at least so many bytes is mapped by itself, and unmapped when it is freed: where nothing is kept, and
#: where something is. That is more than a huge page, but not much: blocks of different lives leave holes in the heap.
MAPPED_BYTES, MAPPED_BESIDE_KEPT = 1_000_000, 2_200_000
#: Environment in which PyTorch asks for huge pages for tensors of 2 MB and more, where the kernel offers them. What is
#: mapped anew in every step is then faulted in by 2 MB instead of 4 kB at a time. Read at a process's first tensor.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
#: Environment variable of the processes that open a task: bytes that work may add to a process.
MEMORY_LIMIT = "TUNER_MEMORY_BYTES"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


class PeakMeter:
    """High-water mark of resident memory since the meter's construction, when `resting` bytes were resident."""

    def __init__(self) -> None:
        with suppress(OSError):  # without /proc the mark counts from the process's start
            CLEAR.write_text(RESET_PEAK, encoding="ascii")
        self.resting: int = psutil.Process().memory_info().rss

    def peak_bytes(self) -> int:
        """Return the high-water mark above the resting size."""
        return max(0, _high_water() - self.resting)


def memory_limit() -> int | None:
    """Return the bytes that work in this process may add to it; None where there is no limit."""
    limit = os.environ.get(MEMORY_LIMIT)
    return None if limit is None else int(limit)


def return_freed(keep: int = 0) -> None:
    """Let freed memory go back to the system at once, so that resident memory follows what is alive.

    By default, glibc raises the size from which blocks are mapped by themselves to that of the largest block freed so
    far (up to 32 MB), and keeps what is smaller in a heap with holes. Other C libraries are left as they are. So many
    bytes are kept at the heap's end for the next step.
    """
    if sys.platform == "win32":  # it gives a library by its name only
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BESIDE_KEPT if keep else MAPPED_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, keep or MAPPED_BYTES)
        if keep:
            library.mallopt(_M_ARENA_MAX, 1)  # or every thread has a heap of its own, which keeps as much
        library.malloc_trim(0)


def _high_water() -> int:
    with suppress(OSError):
        for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024
