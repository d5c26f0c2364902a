"""What one run was asked: written once, compared on resume."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import BudgetError, RunError
from tuner.units import seconds, size

FORMAT = 1
FILE = "run.json"
DEFAULT_TRIALS = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The user's limits; None for none.

    Attributes:
        time_seconds: Of the whole command.
        train_seconds: Of the objective, for any front member.
        memory_bytes: Of a trial's process, above its resting size.
        storage_bytes: Of the store and the run folder together.
        trials: How many are asked for at most.
    """

    time_seconds: float | None = None
    train_seconds: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None
    trials: int | None = None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything a run depends on beside the task's own content."""

    task: str
    space: str = "board-10min"
    seed: int = 0
    backend: str | None = None
    deterministic: bool = False
    limits: Limits = field(default_factory=Limits)


def limits(asked: Mapping[str, str | int | None], defaults: Mapping[str, str], *, deterministic: bool) -> Limits:
    """Return the limits asked for, the search space's where none is; a deterministic run has no limit on its time.

    Raises:
        TunerError: One is no duration, size or count.
        BudgetError: None would ever end the run, or a time is asked of a deterministic one.
    """

    def text(name: str) -> str | None:
        value = asked.get(name)
        return str(value) if value is not None else defaults.get(name)

    time, train, memory, storage, trials = map(text, ("time", "train-time", "memory", "storage", "trials"))
    count = int(trials) if trials is not None and trials.isdigit() else None
    if trials is not None and not count:
        raise BudgetError(f"--trials wants a whole number of at least 1, but it is {trials!r}")
    if deterministic and asked.get("time") is not None:
        raise BudgetError(
            f"--deterministic is ended by --trials alone, as no clock may decide what is tried, but --time "
            f"{asked['time']} is given: leave one of the two out"
        )
    if deterministic:
        count = count or DEFAULT_TRIALS
    elif time is None and count is None:
        raise BudgetError("a run ends by --time or by --trials, but neither is given: add one")
    return Limits(
        time_seconds=None if time is None or deterministic else seconds(time, "--time"),
        train_seconds=None if train is None else seconds(train, "--train-time"),
        memory_bytes=None if memory is None else size(memory, "--memory"),
        storage_bytes=None if storage is None else size(storage, "--storage"),
        trials=count,
    )


def write_run(folder: Path, content: Mapping[str, Any]) -> None:
    """Write ``run.json`` whole or not at all, readable by the user only."""
    write_private(folder / FILE, json.dumps({"format": FORMAT, **content}, indent=1))


def read_run(folder: Path) -> dict[str, Any]:
    """Read ``run.json``.

    Raises:
        RunError: The folder is not a run's, or a newer version wrote it.
    """
    try:
        content: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run: it has no {FILE}; `tuner run TASK --out {folder}` makes one") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / FILE} cannot be read: {error}") from None
    if content.get("format") != FORMAT:
        raise RunError(f"{folder} has run format {content.get('format')!r}, this version reads {FORMAT}: update tuner")
    return content


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by the user only."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def as_dict(one: RunConfig | Limits) -> dict[str, Any]:
    """Return a configuration as JSON's types."""
    return asdict(one)
