"""A task that a function in the user's own Python file returns."""

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tuner.errors import TaskError, TunerError, nearest
from tuner.task.task import Task


def task_from_function(path: Path, function: str) -> Task:
    """Import a Python file and call a function of it.

    Args:
        path: Absolute path of the file.
        function: Name of the function, which takes no arguments and returns a `Task`.

    Raises:
        TaskError: The file or the function is missing, the code raised, or it returned anything else.
    """
    if not path.is_file():
        raise TaskError(f"{path}: no such file; it must define the function {function!r}: check the path")
    try:
        module = _import_file(path)
        build = getattr(module, function, None)
        task = build() if callable(build) else None
    except TunerError:
        raise
    except Exception as error:  # the user's own code may raise anything; they need the line
        raise TaskError(_raised(path, error)) from error
    if not callable(build):
        functions = [name for name, value in vars(module).items() if callable(value)]
        raise TaskError(f"{path}: no function {function!r} in it{nearest(function, functions)}")
    if not isinstance(task, Task):
        raise TaskError(f"{path}:{function} must return a tuner.Task, got {type(task).__name__}")
    return task


def _import_file(path: Path) -> ModuleType:
    name = f"_tuner_task_{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TaskError(f"{path}: cannot be imported as Python: give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _raised(path: Path, error: Exception) -> str:
    """Return one line: the place in the user's file, the type and the first line of an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    last = lines[-1] if lines else None
    line = error.lineno if isinstance(error, SyntaxError) else last
    message = (str(error).splitlines() or [""])[0]
    return f"{path}{f':{line}' if line else ''} raised {type(error).__name__}: {message}"
