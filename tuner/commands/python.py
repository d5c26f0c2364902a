"""`tuner.run` and `tuner.export`: the commands as Python calls them, with numbers for limits."""

import json
import logging
import os
import re
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from inspect import Signature, signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from tuner.commands.bundles import export as exporting
from tuner.commands.interruption import interrupted_as
from tuner.commands.run import Run
from tuner.commands.tune import run as tuning
from tuner.commands.tune.run import Call
from tuner.errors import TunerError, UsageError, nearest
from tuner.results import run as results_run
from tuner.results.records.config import RunRequest, option_name
from tuner.results.views.pick import nothing_feasible
from tuner.search.budget import MOST_SEED
from tuner.task import Task

DURATIONS, SIZES = ("time", "train_time", "stop_when_flat"), ("memory", "storage", "replay")
#: Names by which Optuna knows what is asked of a run.
ELSEWHERE = {
    "n_trials": "trials",
    "timeout": "time",
    "callbacks": "on_event",
    "storage_url": "study",
    "load_if_exists": "resume",
    "show_progress_bar": "progress",
    "output": "out",
    "from_": "earlier",
    "plugin": "plugins",
}
#: What has no argument of its own, and where it is said instead.
UNKNOWN = {
    "pruner": "plans are tried on few samples first: space={'rungs': False} leaves that out",
    "n_jobs": "start several runs with one study=",
    "directions": "each objective has its own: @tuner.objective('minimise') above a function of yours",
}
FLAGS = frozenset({"resume", "keep_going", "deterministic", "trainable", "int8", "refit", "test", "drop_unreached"})
_COMMAND = re.compile(r"(\btuner [a-z](?:[^,;:()`]|:(?! ))*)")
_OPTION = re.compile(r"--(no-)?([a-z][a-z0-9-]*)")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Asked(Call):
    """A run from Python, as `Call`; limits may be numbers, and a search space a dict.

    Attributes:
        space: Search space: a name, a file, or a dict of what such a file holds; a dict of knobs alone changes these in
            ``board-10min``.
        objectives: Names of objectives, and functions of ``predictions`` and ``labels``, which are maximised unless
            `tuner.objective` decorates them; or one of these; the search space's where this is not given.
        sampler: Name of a sampler, or an object of `optuna.samplers.BaseSampler`, which suggests in this process alone.
        time: Limit on the whole call: seconds, a `timedelta`, or text such as ``"10m"``.
        train_time: Limit on the training time of each trial, likewise.
        memory: Limit on the memory that a trial adds to its process: bytes, or text such as ``"512MB"``.
        storage: Limit on stored features and the run folder together, likewise.
        forget_at_most: Limit on the loss of global accuracy against the untouched model: a fraction, or ``"3%"``.
        stop_when_flat: End after this time without a better front: as `time`.
        seed: The study's seed; None for any, which ``run.info.config.seed`` then holds: give that to resume.
    """

    space: str | os.PathLike[str] | Mapping[str, Any] = "board-10min"  # type: ignore[assignment]  # text from here on
    objectives: str | Callable[..., float] | Sequence[str | Callable[..., float]] | None = None  # type: ignore[assignment]
    sampler: Any = None
    time: float | timedelta | str | None = None  # type: ignore[assignment]
    train_time: float | timedelta | str | None = None  # type: ignore[assignment]
    memory: int | str | None = None  # type: ignore[assignment]
    storage: int | str | None = None  # type: ignore[assignment]
    forget_at_most: float | str | None = None  # type: ignore[assignment]
    stop_when_flat: float | timedelta | str | None = None  # type: ignore[assignment]
    seed: int | None = 0  # type: ignore[assignment]


def _with_options_of(
    options: Callable[P, Asked],
) -> Callable[[Callable[..., Run]], Callable[Concatenate[str | os.PathLike[str] | Task, P], Run]]:
    """Show a class's fields as the keyword arguments of a function: to type checkers, to `help` and to completion."""

    def shown(function: Callable[..., Run]) -> Callable[Concatenate[str | os.PathLike[str] | Task, P], Run]:
        parameters = (signature(function).parameters["task"], *signature(options).parameters.values())
        function.__signature__ = Signature(parameters, return_annotation=Run)  # type: ignore[attr-defined]  # of any function
        return function

    return shown


@_with_options_of(Asked)
def run(task: str | os.PathLike[str] | Task, **options: Any) -> Run:
    """Tune a task within limits: try plans by training them, and keep the Pareto front.

    The options are those of ``tuner run``, by the names of `tuner.results.records.config.RunRequest`. Limits are
    numbers in seconds and bytes, or text as on the command line: ``time=600``, ``time="10m"``. Shares are fractions, or
    text in percent. `plugins` may also be modules, which are loaded again from their files in the processes that trials
    run in.
    `tuner.commands.tune.run.Call` has those that say who hears of progress; without a terminal, it is logged to stderr
    where the program has not configured `logging`.

    Args:
        task: A ``task.toml``, a ``file.py:function``, the name of a built-in task, or a task.
        **options: What is asked of the run.

    Returns:
        The run, as ``tuner.Run.open`` reads it from its folder. Its front is empty where no trial obeys every limit:
        a warning says which limit.

    Raises:
        TunerError: The task, the space, a plugin, a limit or the folder cannot be used as asked.
        TypeError: There is no such option; which is meant.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    known = [one.name for one in fields(Call)]
    for name in options:
        if name not in known:
            raise TypeError(f"run() got an unexpected keyword argument {name!r}{_meant(name, known)}")
    nothing = interrupted_as("interrupted before anything was tried", "to begin: call tuner.run again")
    with _arguments_in_errors(), _logged(options), nothing:
        found = tuning.run(task, **{name: _as_text(name, value) for name, value in options.items()})
    if not found.front:
        warnings.warn(f"the front of {found.folder} is empty: {_with_arguments(nothing_feasible(found))}", stacklevel=2)
    return found


def export(run: results_run.Run, out: str | os.PathLike[str], pick: str | int = "best", **options: Any) -> Path:
    """Write a trial of the Pareto front as a bundle: `tuner.commands.bundles.export.export`."""
    kept = f"interrupted; nothing was written to {os.fspath(out)}, and {run.folder} is as it was"
    again = f"to export: tuner.export(tuner.Run.open({str(run.folder)!r}), {os.fspath(out)!r})"
    with _arguments_in_errors(), interrupted_as(kept, again):
        texts = {name: _as_text(name, value) for name, value in options.items()}
        return exporting.export(run, os.fspath(out), str(pick), **texts)


export.__doc__ = exporting.export.__doc__
export.__signature__ = signature(exporting.export)  # type: ignore[attr-defined]  # of any function


def _meant(name: str, known: Sequence[str]) -> str:
    """Return what a name that is unknown may mean, as the end of a message."""
    if name in ELSEWHERE:
        return f" (here it is {ELSEWHERE[name]!r})"
    return f": {UNKNOWN[name]}" if name in UNKNOWN else nearest(name, known)


def _as_text(name: str, value: Any) -> Any:
    """Return what an argument is on the command line, where Python gives it in another form."""
    if name == "seed" and value is None:
        return secrets.randbelow(MOST_SEED + 1)
    if hasattr(value, "dtype"):
        value = value.tolist()
    if name == "objectives" and not isinstance(value, str | None):
        several = [value] if callable(value) else value
        value = ",".join(one if isinstance(one, str) else _function_name(one) for one in several)
    if name == "space" and isinstance(value, Mapping):
        return json.dumps(value, default=_listed)
    if isinstance(value, os.PathLike):
        return value if name == "web" else os.fspath(value)
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return value
    if name in DURATIONS:
        return f"{float(value):f}".rstrip("0").rstrip(".") + "s"
    return f"{int(value)}B" if name in SIZES else str(value) if name == "forget_at_most" else value


def _function_name(function: Any) -> str:
    """Return what names a function in its file, ``file.py:function``: other processes load it by that.

    Raises:
        UsageError: It is not at the top level of a Python file, or the file would run once more.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    module = sys.modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None) or ""
    if not file.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"objectives: {name} must be a function at the top level of a .py file, which the processes of trials load "
            "by its name: write it there, with `def NAME(predictions, labels)`"
        )
    if module is sys.modules["__main__"] and "__main__" not in Path(file).read_text(encoding="utf-8"):
        raise UsageError(
            f"objectives: the processes of trials load {name} from {file}, which would begin another run: put the call "
            'of tuner.run below `if __name__ == "__main__":`'
        )
    return f"{file}:{name}"


def _listed(value: Any) -> Any:
    """Return what JSON has for a value of a search space that it does not know."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _with_arguments(text: str) -> str:
    """Return a message with arguments instead of options: ``time`` for ``--time``, ``resume=True`` for ``--resume``."""
    names = {option_name(one.name): one.name for one in fields(RunRequest)}
    names |= {option_name(name): name for name in signature(exporting.export).parameters}

    def argument(found: re.Match[str]) -> str:
        name = names.get(found[2], found[0])
        return f"{name}={not found[1]}" if name in FLAGS else name

    parts = _COMMAND.split(text)  # what is to be typed in a shell stays as it is
    return "".join(part if at % 2 else _OPTION.sub(argument, part) for at, part in enumerate(parts))


@contextmanager
def _arguments_in_errors() -> Iterator[None]:
    """Name arguments instead of options in the errors that a block raises."""
    try:
        yield
    except TunerError as error:
        error.args = tuple(_with_arguments(one) if isinstance(one, str) else one for one in error.args)
        raise


def _is_configured(logger: logging.Logger | None) -> bool:
    """Return whether messages of a logger reach a handler: a library's null handler is none."""
    if logger is None or any(not isinstance(one, logging.NullHandler) for one in logger.handlers):
        return logger is not None
    return _is_configured(logger.parent if logger.propagate else None)


@contextmanager
def _logged(options: Mapping[str, Any]) -> Iterator[None]:
    """Log a run's progress to stderr where nothing else shows it, and the program has not configured `logging`."""
    logger, handler = logging.getLogger("tuner.run"), logging.StreamHandler()
    shows = any(options.get(name) is not None for name in ("progress", "on_event", "listener"))
    if shows or sys.stderr.isatty() or "ipykernel" in sys.modules or _is_configured(logger):
        yield
        return
    handler.setFormatter(logging.Formatter("[%(levelname).1s %(asctime)s] %(message)s", "%H:%M:%S"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
