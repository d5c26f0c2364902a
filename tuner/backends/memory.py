"""This process's memory, as the kernel counts it."""

from contextlib import suppress
from pathlib import Path

import psutil

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


class PeakMeter:
    """High-water mark of resident memory since the meter was made.

    Attributes:
        resting: Resident bytes when the meter was made.
    """

    def __init__(self) -> None:
        with suppress(OSError):  # without /proc the mark counts from the process's start
            CLEAR.write_text(RESET_PEAK)
        self.resting: int = psutil.Process().memory_info().rss

    def peak_bytes(self) -> int:
        """Return the high-water mark above the resting size."""
        return max(0, _high_water() - self.resting)


def _high_water() -> int:
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024
