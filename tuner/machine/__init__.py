"""What the machine and its system give this process: the time that it is awake, processors, memory."""

import os
import platform


def this_machine() -> str:
    """Return a name of this machine: what was measured on it may lie in files that others read too."""
    return f"{platform.node()} {platform.machine()} {os.cpu_count()}"
