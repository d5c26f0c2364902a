"""What the processes of jobs say to the parent: JSON, read as one of a few types.

They run the code of tasks, plugins and libraries, so nothing that they send is trusted, and none of it is unpickled.
The other way, from the parent to them, jobs are pickled: a task may be any Python object.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.backends.base import MOST_MISREAD, Exported, Filling, Misread
from tuner.errors import (
    MOST_LETTERS,
    MOST_TRACE,
    BudgetError,
    ModelError,
    PluginError,
    StoreError,
    TaskError,
    TunerError,
    with_trace,
)
from tuner.plan.info import ModelInfo
from tuner.planner.device import FirstSteps, Rates
from tuner.planner.memory.step import StepPlan
from tuner.results.records import Outcome
from tuner.search.processes.frames import FrameError
from tuner.search.processes.messages import Failure
from tuner.task.info import TaskOutline

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

#: Characters of a failure's line, and of its traceback.
LINE, TRACE = MOST_LETTERS, MOST_TRACE
#: No number of a model, a device or a count is larger: arithmetic on it stays finite.
LARGEST = 1e18
#: What is done, by the name of that; and what it is out of.
OUT_OF = {"step": "steps", "filled": "of"}
Progress = Mapping[str, Any]
#: What opening a task may raise that callers tell apart.
ERRORS = {kind.__name__: kind for kind in (TaskError, ModelError, PluginError, StoreError, BudgetError)}


@dataclass(frozen=True, slots=True)
class _FillingMessage:
    """A `Filling`, whose folders JSON cannot have by cut and width; their names are any bytes, as Latin-1."""

    records: int
    seconds: float
    seconds_per_sample: dict[int, float]
    peak_bytes: int
    folders: tuple[tuple[tuple[int, int], tuple[str, ...]], ...]
    stopped: bool

    @classmethod
    def of(cls, filling: Filling) -> "_FillingMessage":
        folders = tuple(
            (at, tuple(os.fsencode(path).decode("latin-1") for path in paths)) for at, paths in filling.folders.items()
        )
        values = {field.name: getattr(filling, field.name) for field in fields(filling)}
        return cls(**{**values, "folders": folders})

    def filling(self) -> Filling:
        folders = {at: tuple(Path(os.fsdecode(name.encode("latin-1"))) for name in names) for at, names in self.folders}
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Filling(**{**values, "folders": folders})


#: What the methods of `Session` return; any other method of a session returns JSON.
RESULTS: Mapping[str, Any] = {
    "model": ModelInfo,
    "measure": Rates,
    "first_steps": FirstSteps,
    "plan_step": StepPlan | None,
    "untouched": Outcome,
    "given_probabilities": tuple[tuple[float, ...], ...],
    "missing": int,
    "fill": _FillingMessage,
    "train": Outcome,
    "export": Exported,
    "misread": tuple[Misread, ...],
}


def encode(value: Any) -> bytes:
    """Return a value as JSON. NumPy's numbers are numbers, and a lone surrogate is a question mark.

    Raises:
        FrameError: It holds what JSON does not have.
    """
    value = _FillingMessage.of(value) if isinstance(value, Filling) else value
    try:
        return json.dumps(value, default=_plain, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"a message must be of numbers, texts, lists and tables: {error}") from None


def result_from(method: str, content: bytes) -> Any:
    """Return what a session's method returned.

    Raises:
        FrameError: It is of another type than the method returns, or breaks a rule of it; one line.
    """
    value = _read(method, content, f"what {method} returned")
    if isinstance(value, _FillingMessage):
        value = value.filling()
    if problem := _problem(value):
        raise FrameError(f"what {method} returned: {problem}")
    return value


def progress_from(content: bytes) -> Progress:
    """Return a progress message.

    Raises:
        FrameError: It is none.
    """
    values: dict[str, Any] = _read("progress", content, "a progress message must give numbers and texts by name")
    for name, whole in OUT_OF.items():
        if name in values and not (_is_number(values[name]) and _is_number(values.get(whole))):
            given = f"{values[name]!r} and {values.get(whole)!r}"
            raise FrameError(f"a progress message must give {name} and {whole} as numbers, got {given:.200}")
    for name in ("loss", "seconds", "resting_bytes"):
        if name in values and not (_is_number(values[name]) or (name == "loss" and isinstance(values[name], float))):
            raise FrameError(f"a progress message must give {name} as a number, got {values[name]!r:.200}")
    return values


def failure_from(content: bytes) -> Failure:
    """Return what a job raised, with its texts cut.

    Raises:
        FrameError: It is no failure.
    """
    given: Failure = _read("failure", content, "its failure")
    kept = {name: getattr(given, name) for name in ("unsupported", "edit", "is_bug", "error")}
    return failure(given.text, given.trace, **kept)


def error_from(content: bytes) -> TunerError:
    """Return what opening a task raised, to be raised again; a note of it is the traceback, where there is one.

    Raises:
        FrameError: It is no failure.
    """
    given = failure_from(content)
    return with_trace(ERRORS.get(given.error, TunerError)(given.text), given.trace)


def task_from(content: bytes) -> TaskOutline:
    """Return the task that was loaded.

    Raises:
        FrameError: It is none.
    """
    task: TaskOutline = _read("task", content, "the task")
    return task


def failure(
    text: str, trace: str = "", *, unsupported: bool = False, edit: str = "", is_bug: bool = False, error: str = ""
) -> Failure:
    """Return a failure with its texts cut: one line, others' control characters escaped; both ends of a traceback."""
    words = " ".join(text[: 2 * LINE].split())
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
    line = line if len(line) <= LINE else f"{line[:LINE]}…"
    if len(trace) > TRACE:
        end = TRACE // 2 - 50
        trace = f"{trace[:end]}\n… {len(trace) - 2 * end:,} characters are left out …\n{trace[-end:]}"
    return Failure(line, trace, unsupported, edit[:LINE], is_bug, error[:LINE])


def encode_failure(given: Failure) -> bytes:
    """Return a failure as JSON."""
    return encode(asdict(given))


def _plain(value: Any) -> Any:
    """Return what JSON has for a value that it does not have."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # of NumPy or PyTorch
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


@cache
def _adapter(what: str) -> "TypeAdapter[Any]":
    from pydantic import JsonValue, TypeAdapter

    others = {"progress": dict[str, bool | int | float | str], "failure": Failure, "task": TaskOutline}
    return TypeAdapter({**others, **RESULTS}.get(what, JsonValue))


def _read(what: str, content: bytes, subject: str) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(what).validate_json(content, strict=True)
    except ValidationError as error:
        raise FrameError(f"{subject}: {_sentence(error)}") from None


def _sentence(error: "ValidationError") -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    message, value = f"{first['msg'][:1].lower()}{first['msg'][1:]}", first["input"]
    return f"{where + ': ' if where else ''}{message}, got {value!r:.100}"


def _problem(value: Any) -> str:
    """Return which rule a value breaks that its type does not say; empty where it breaks none."""
    if isinstance(value, ModelInfo) and not value.blocks:
        return "a model has at least one block, got none"
    if isinstance(value, Outcome):
        if not all("loss" in epoch for epoch in value.epochs):
            return "every epoch has a loss, one has none"
        return next((counts.problem for counts in value.classes.values() if counts.problem), "")
    if isinstance(value, tuple) and len(value) > MOST_MISREAD and isinstance(value[0], Misread):
        return f"at most {MOST_MISREAD} misread samples are shown, got {len(value)}"
    if isinstance(value, ModelInfo | Rates | FirstSteps | StepPlan | Filling | int):
        wrong = next((number for number in _numbers(value) if not abs(number) <= LARGEST), None)
        return "" if wrong is None else f"numbers are at most {LARGEST:g}, got {str(wrong)[:30]}"
    return ""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (*_numbers(key), *_numbers(one))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
