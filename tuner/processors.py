"""The processors that this process may use, and the machine that has them."""

import os
import platform

from tuner.control_group import usable


def usable_processors() -> int:
    """Return how many processors this process may use; where the system does not say so, how many there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return usable(len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def this_machine() -> str:
    """Return a name of this machine: what was measured on it may lie in files that others read too."""
    return f"{platform.node()} {platform.machine()} {os.cpu_count()}"
