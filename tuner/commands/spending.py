"""What a run has spent, and what is left to its store."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.results.config import RunConfig
from tuner.results.folder import Spent
from tuner.search.setting import RUN_RESERVE
from tuner.store.store import disk_bytes
from tuner.units import format_bytes

if TYPE_CHECKING:
    from tuner.search.study import Study


def spent_so_far(
    earlier: Spent, started: float, phases: Mapping[str, float], study: "Study | None", database_seconds: float = 0.0
) -> Spent:
    """Return what a run has spent.

    Args:
        earlier: What earlier sessions spent.
        started: Clock (`time.monotonic`) at which this one began.
        phases: Seconds before the study, by what they were spent on.
        study: The study; None before there is one.
        database_seconds: Seconds that the database of a shared study took; 0 for a run of its own.
    """
    seconds = time.monotonic() - started
    if study is None:
        return Spent(earlier.seconds + seconds)
    now = {**phases, **study.phases, **({"database": database_seconds} if database_seconds else {})}
    now["other"] = seconds - sum(now.values())
    before = earlier.phases
    summed = {name: before.get(name, 0.0) + now.get(name, 0.0) for name in {**before, **now}}
    return Spent(earlier.seconds + seconds, study.storage_bytes(), study.filled_samples, summed)


def store_cap(config: RunConfig, folder: Path) -> tuple[int | None, str]:
    """Return the bytes that are left to the store, and the limit in words."""
    storage = config.limits.storage_bytes
    if storage is None:
        return None, ""
    used = RUN_RESERVE + disk_bytes(folder)
    limit = f"--storage {format_bytes(storage)}, of which {format_bytes(used)} are for the run's folder,"
    return max(0, storage - used), limit
