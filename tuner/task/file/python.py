"""A task that a function in the user's own Python file returns."""

import traceback
from pathlib import Path

from tuner.errors import TaskError, TunerError, nearest
from tuner.files import import_file
from tuner.reading import kind_of
from tuner.task.task import Task


def task_from_function(path: Path, function: str) -> Task:
    """Import a Python file and call a function of it.

    Args:
        path: Absolute path of the file.
        function: Name of the function, which takes no arguments and returns a `Task`.

    Raises:
        TaskError: The file or the function is missing, the code raised, or it returned anything else.
    """
    if kind_of(path) != "file":
        raise TaskError(f"{path}: no such file; it must define the function {function!r}: check the path")
    try:
        module = import_file(path, "task")
        build = getattr(module, function, None)
        task = build() if callable(build) else None
    except TunerError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; they need the line
        raise TaskError(_raised(path, error)) from error
    if not callable(build):
        functions = [name for name, value in vars(module).items() if callable(value)]
        raise TaskError(f"{path}: no function {function!r} in it{nearest(function, functions)}")
    if not isinstance(task, Task):
        raise TaskError(f"{path}:{function} must return a tuner.Task, got {type(task).__name__}")
    return task


def _raised(path: Path, error: BaseException) -> str:
    """Return one line: the place in the user's file, the type and the first line of an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    last = lines[-1] if lines else None
    line = error.lineno if isinstance(error, SyntaxError) else last
    message = (str(error).splitlines() or [""])[0]
    return f"{path}{f':{line}' if line else ''} raised {type(error).__name__}: {message}"
