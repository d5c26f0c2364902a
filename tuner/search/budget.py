"""The limits of a run: what the user gave, else what the search space says."""

import re
from collections.abc import Mapping

from tuner.errors import BudgetError
from tuner.results.config import Budget
from tuner.units import parse_seconds, parse_share, parse_size

DEFAULT_TRIALS = 20
MOST_SEED = 2**32 - 1
COUNT = re.compile(r"[0-9]{1,9}")
#: Names of the limits, as on the command line.
LIMITS = ("time", "train-time", "memory", "storage", "trials", "forget-at-most", "stop-when-flat")


def check_seed(seed: int) -> int:
    """Return a study's seed.

    Raises:
        BudgetError: No generator of random numbers takes it.
    """
    if not 0 <= seed <= MOST_SEED:
        raise BudgetError(f"--seed must be a whole number from 0 to {MOST_SEED}, got {seed}")
    return seed


def budget(asked: Mapping[str, str | int | None], defaults: Mapping[str, str], *, deterministic: bool) -> Budget:
    """Return the limits asked for, the search space's where none is; a deterministic run has no limit on its time.

    Raises:
        TunerError: One is no duration, size or count.
        BudgetError: None would ever end the run, or a time is asked of a deterministic one.
    """

    def text(name: str) -> str | None:
        value = asked.get(name)
        return str(value) if value is not None else defaults.get(name)

    time, train, memory, storage, trials, forget, flat = map(text, LIMITS)
    count = int(trials) if trials is not None and COUNT.fullmatch(trials) else None
    if trials is not None and not count:
        raise BudgetError(f"--trials must be a whole number from 1 to 999999999, got {trials!r}")
    if deterministic and asked.get("time") is not None:
        raise BudgetError(
            f"--deterministic runs end after --trials, not after --time {asked['time']}: "
            "remove --time or --deterministic"
        )
    if deterministic and asked.get("stop-when-flat") is not None:
        raise BudgetError("--deterministic runs end after --trials, not by the clock: remove --stop-when-flat")
    if deterministic:
        flat, count = None, count or DEFAULT_TRIALS
    elif time is None and count is None:
        raise BudgetError("a run ends by --time or by --trials, but neither is given: add one")
    return Budget(
        time_seconds=None if time is None or deterministic else parse_seconds(time, "--time"),
        train_seconds=None if train is None else parse_seconds(train, "--train-time"),
        memory_bytes=None if memory is None else parse_size(memory, "--memory"),
        storage_bytes=None if storage is None else parse_size(storage, "--storage"),
        trials=count,
        flat_seconds=None if flat is None else parse_seconds(flat, "--stop-when-flat"),
        forgetting=None if forget is None else parse_share(forget, "--forget-at-most"),
    )
