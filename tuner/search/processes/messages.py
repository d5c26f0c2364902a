"""The messages between the parent and its children.

The parent pickles what it sends: a task may be any Python object. What comes back is JSON: a backend that returns a
tensor by mistake would otherwise have the parent import its library.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tuner.backends.base import Session
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
from tuner.plan.trial import TrialPlan
from tuner.printable import printable
from tuner.results.records.trial import Outcome
from tuner.search.processes.channel import pack
from tuner.task import Task

#: Of a job: progress, and its last word. Of the process that children are forked from: how many of how many files were
#: looked at; the task, loaded; it is open; a child's process id; its exit code; why the task cannot be opened.
Kind = Literal["progress", "result", "failure", "looked", "task", "opened", "forked", "exited"]
#: Longest message of a job: one that returns more by mistake fails.
MOST_BYTES = 4_000_000
#: In front of a `Start` that takes the place of the one before.
ANOTHER = b"o"
#: What is done, by the name of that; and what it is out of.
OUT_OF = {"step": "steps", "filled": "of", "scored": "of"}
#: Numbers of progress messages that the parent reckons with.
NUMBERS = ("step", "filled", "scored", "loss", "seconds", "resting_bytes")
#: Types that JSON has, or has as text; of a text, half a character is a question mark.
PLAIN: Mapping[Any, Callable[[Any], Any]] = {
    int: int,
    float: float,
    bool: bool,
    str: lambda text: str(text).encode(errors="replace").decode(),
    Path: Path,
}
#: What opening a task may raise that callers tell apart.
ERRORS = (TaskError, ModelError, PluginError, StoreError, BudgetError)


#: What building a value of another type raises.
MISFITS = (AttributeError, KeyError, TypeError, ValueError)


class MessageError(TunerError):
    """What is sent, or what arrives, is no message."""


@dataclass(frozen=True, slots=True)
class Start:
    """What the process that children are forked from prepares; sent first, and again to open another task.

    It imports the modules of ``preload``, and of ``optional`` those that can be imported. It opens the task, as
    ``adapt`` makes it, on the backends; with ``many_jobs``, what every job needs is computed before the first. Of
    plugins, the local files are loaded, and those that the main process refused are not. ``memory_bytes`` is what
    opening the task may add to its process.
    """

    preload: tuple[str, ...]
    task: str | Task
    backends: tuple[str, ...]
    many_jobs: bool
    plugins: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    memory_bytes: int | None = None
    adapt: Callable[[Task], Task] | None = None
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A session's method to call in a child; ``model`` is a property.

    A method takes ``report`` where it ``reports``; a `Trial` among its arguments always does. Freed memory goes back
    to the system where the job ``frees``, which takes time; that of a ``metered`` one counts from its start. The
    session is prepared for ``plan`` before the child is forked.
    """

    backend: str
    method: str
    arguments: dict[str, Any]
    reports: bool
    frees: bool = False
    metered: bool = False
    plan: TrialPlan | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """What a job raised, in one line, and its traceback where the user needs it.

    ``unsupported`` says that the backend cannot carry the plan out, ``is_bug`` that a user cannot act on it. ``edit``
    is the kind of the edit or loss term that is at fault, ``error`` the name of the class in `tuner.errors` where that
    makes a difference.
    """

    text: str
    trace: str = ""
    unsupported: bool = False
    edit: str = ""
    is_bug: bool = False
    error: str = ""

    @classmethod
    def of(cls, text: str, trace: str = "", **more: Any) -> "Failure":
        """Return a failure with its texts cut: one printable line, and both ends of a traceback."""
        line = printable(" ".join(text[: 2 * MOST_LETTERS].split()))
        line = line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}…"
        if len(trace) > MOST_TRACE:
            end = MOST_TRACE // 2 - 50
            trace = f"{trace[:end]}\n… {len(trace) - 2 * end:,} characters are left out …\n{trace[-end:]}"
        return cls(line, trace, **more)

    def error_of_opening(self) -> TunerError:
        """Return what opening a task raised, to be raised again; a note of it is the traceback, where there is one."""
        kind = next((error for error in ERRORS if error.__name__ == self.error), TunerError)
        return with_trace(kind(self.text), self.trace)


def encode(kind: Kind, value: Any = None) -> bytes:
    """Return a message, packed. NumPy's numbers are numbers."""
    try:
        content = json.dumps([kind, value], default=_plain, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"a message must be of numbers, texts, lists and tables: {error}") from None
    if len(content) > MOST_BYTES:
        raise MessageError(f"a message of {len(content):,} bytes is too long: at most {MOST_BYTES:,} are allowed")
    return pack(content)


def encode_progress(progress: Mapping[str, Any]) -> bytes:
    """Return a progress message, packed, with its texts cut; whoever shows it counts on numbers."""
    if not isinstance(progress, Mapping):
        raise MessageError(f"a progress message must be a table of numbers and texts, got {progress!r:.100}")
    values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in progress.items()}
    numbers = [name for name in NUMBERS if name in values]
    for name in (*numbers, *(OUT_OF[name] for name in numbers if name in OUT_OF)):
        if not isinstance(values.get(name), int | float):
            raise MessageError(f"a progress message must give {name} as a number, got {values.get(name)!r:.100}")
    texts = {name: value[:MOST_LETTERS] for name, value in values.items() if isinstance(value, str)}
    return encode("progress", {**values, **texts})


def result_from(method: str, value: Any) -> Any:
    """Return what a session's method returned, as the type that it declares; as JSON has it, of any other method."""
    declared = getattr(Session, method, None)
    if declared is None:
        return value
    try:
        result = build(get_type_hints(getattr(declared, "fget", declared))["return"], value)
    except MISFITS as error:
        raise MessageError(f"what {method} returned: {error}") from None
    if isinstance(result, ModelInfo) and not result.blocks:
        raise MessageError("a model must have at least one block, got none")
    if isinstance(result, Outcome) and not all("loss" in epoch for epoch in result.epochs):
        raise MessageError("every epoch must have a loss, but one has none")
    return result


def build(declared: Any, value: Any) -> Any:
    """Return a value of a declared type from what JSON has for it, or raise one of `MISFITS`."""
    if declared in PLAIN:
        return PLAIN[declared](value)
    if is_dataclass(declared) and isinstance(declared, type):
        types = _types(declared)
        return declared(**{name: _part(name, types[name], part) for name, part in value.items()})
    origin, parts = get_origin(declared), get_args(declared)
    if origin is UnionType:
        return None if value is None else build(parts[0], value)
    if origin is tuple:
        kinds = repeat(parts[0], len(value)) if parts[-1] is Ellipsis else parts
        return tuple(build(part, item) for part, item in zip(kinds, value, strict=True))
    if origin in {dict, Mapping}:
        pairs = value.items() if isinstance(value, dict) else value
        return {build(parts[0], key): _part(key, parts[1], item) for key, item in pairs}
    return value


def _part(name: Any, declared: Any, value: Any) -> Any:
    try:
        return build(declared, value)
    except MISFITS as error:
        raise ValueError(f"{name}: {error}") from None


_types = cache(get_type_hints)


def _plain(value: Any) -> Any:
    """Return what JSON has for a value that it does not have; see `_table`."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: _table(part) if isinstance(part, Mapping) else part for name, part in parts.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # of NumPy or PyTorch
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def _table(mapping: Mapping[Any, Any]) -> Any:
    """Return a mapping as JSON has it: a list of pairs where its keys are no texts."""
    return dict(mapping) if all(isinstance(key, str) for key in mapping) else list(mapping.items())
