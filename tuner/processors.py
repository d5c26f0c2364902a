"""The processors that this process may use."""

import os


def usable_processors() -> int:
    """Return how many processors this process may use; where the system does not say so, how many there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
