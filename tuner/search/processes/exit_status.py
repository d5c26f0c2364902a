"""How a process ended, for people."""

import signal
from pathlib import Path

VMSTAT = Path("/proc/vmstat")
#: Signals that a process is sent for what its own code does.
NATIVE_CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"})


def describe_exit(code: int | None, *, out_of_memory: bool) -> str:
    """Return how a process ended: ``ended with exit code 3: ...``.

    Args:
        code: Its exit code, or the number of a signal, negated; None where it had to be killed.
        out_of_memory: Whether the system killed a process meanwhile because memory ran out.
    """
    if code is None:
        return "ended its connection without a result, and had to be killed"
    if code >= 0:
        return f"ended with exit code {code}: a library or a plugin ended it"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if name == "SIGKILL":
        cause = "the system ran out of memory" if out_of_memory else "another program or a user ended it"
        return f"was ended by {name}: {cause}"
    if name in NATIVE_CRASHES:
        return f"was ended by {name}: a library or a plugin's native code crashed"
    return f"was ended by {name}"


def oom_kills() -> int:
    """Return how many processes the system has killed so far because memory ran out."""
    try:
        lines = VMSTAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
