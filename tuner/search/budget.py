"""The limits of a run: what the user gave, else what the search space says."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import psutil

from tuner.errors import SpaceError, UsageError
from tuner.machine.control_group import free_memory, memory_limit
from tuner.results.records.config import Budget, RunRequest
from tuner.units import parse_seconds, parse_share, parse_size

N = TypeVar("N", int, float)
DEFAULT_TRIALS = 20
MOST_SEED = 2**32 - 1
#: What the libraries take of a control group before the first trial, and what a trial may have at least.
LIBRARY_BYTES, LEAST_BYTES = 350_000_000, 64_000_000
COUNT = re.compile(r"[0-9]{1,9}")
#: Names of the limits that a search space may have, as on the command line.
LIMITS = ("time", "train-time", "memory", "storage", "trials", "forget-at-most", "stop-when-flat")


def check_seed(seed: int) -> int:
    """Return a study's seed; UsageError where no generator of random numbers takes it."""
    if not 0 <= seed <= MOST_SEED:
        raise UsageError(f"--seed must be a whole number from 0 to {MOST_SEED}, got {seed}")
    return seed


def budget(request: RunRequest, defaults: Mapping[str, str]) -> Budget:
    """Return the limits asked for, the search space's where none is; a deterministic run has no limit on its time.

    Raises:
        TunerError: One cannot be read, a time is asked of a deterministic run, or none would ever end the run.
    """

    def read(name: str, parse: Callable[[str, str], N]) -> N | None:
        if (value := getattr(request, name.replace("-", "_"))) is not None:
            return parse(str(value), f"--{name}")
        return parse(defaults[name], f"the search space's {name}") if name in defaults else None

    deterministic = request.deterministic
    count, time = read("trials", _count), None if deterministic else read("time", parse_seconds)
    if deterministic and request.time is not None:
        raise UsageError(
            f"--deterministic runs end after --trials, not after --time {request.time}: "
            "remove --time or --deterministic"
        )
    if deterministic and request.stop_when_flat is not None:
        raise UsageError("--deterministic runs end after --trials, not by the clock: remove --stop-when-flat")
    if deterministic:
        count = count or DEFAULT_TRIALS
    elif time is None and count is None:
        raise UsageError("a run ends by --time or by --trials, but neither is given: add one")
    return Budget(
        time_seconds=time,
        train_seconds=read("train-time", parse_seconds),
        memory_bytes=read("memory", parse_size) or group_memory(),
        storage_bytes=read("storage", parse_size),
        trials=count,
        flat_seconds=None if deterministic else read("stop-when-flat", parse_seconds),
        forgetting=read("forget-at-most", parse_share),
        keep_going=request.keep_going,
    )


def group_memory() -> int | None:
    """Return the memory that a run may add where the user gives none: what its control group has left for it."""
    limit, free = memory_limit(), free_memory()
    if limit is None or free is None or limit >= psutil.virtual_memory().total:
        return None
    return max(LEAST_BYTES, free - LIBRARY_BYTES)


def _count(text: str, what: str) -> int:
    count = int(text) if COUNT.fullmatch(text) else 0
    if not count:
        kind = UsageError if what.startswith("--") else SpaceError
        raise kind(f"{what} must be a whole number from 1 to 999999999, got {text!r}")
    return count
