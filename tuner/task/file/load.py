"""From what the user names to a `Task`: a file, a function in a Python file, or a built-in."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from tuner.distribution import SWITCH
from tuner.errors import TaskError, TunerError, nearest
from tuner.files import import_file
from tuner.reading import expanded, kind_of, path_from
from tuner.task.file.toml import TomlReader, task_from_toml
from tuner.task.reader import DefaultsOf, TaskReader, nobody_says
from tuner.task.task import Task

#: Readers of files by the ending of their names, without those of plugins.
READERS: Mapping[str, TaskReader] = {".toml": TomlReader()}


def open_task(
    text: str,
    builtin: Mapping[str, Callable[[], Task]] = {},
    readers: Mapping[str, TaskReader] = READERS,
    *,
    look: bool = True,
    defaults_of: DefaultsOf = nobody_says,
) -> Task:
    """Load the task a user names.

    Args:
        text: Path of a ``task.toml`` or its folder, or of another file that a plugin reads; ``file.py:function``; a
            built-in's name; or ``task.toml#model``, with a candidate in the place of its model.
        builtin: Built-in tasks by name.
        readers: Readers of files, by the ending of their names.
        look: Whether to look at every file that a task file lists.
        defaults_of: Gives what ``[input]`` leaves out, for images of a published model.

    Raises:
        TaskError: Nothing has that name, or it cannot be used; one line with the reason.
    """
    if text in builtin:
        return builtin[text]()
    if not text.strip():  # as a path it would be the current folder
        raise TaskError(f"the name of the task is empty, got {text!r}: give a task.toml, or . for the current folder")
    name, mark, model = text.partition(".toml#")
    if mark:
        path = expanded(path_from(f"{name}.toml")).absolute()
        return task_from_toml(path, look=look, defaults_of=defaults_of, model=model)
    file, colon, function = text.rpartition(":")
    if colon and file.endswith(".py"):
        return task_from_function(expanded(path_from(file)).absolute(), function)
    path = expanded(path_from(text)).absolute()
    if kind_of(path) == "folder" and kind_of(path / "task.toml") != "nothing":
        path /= "task.toml"
    if path.suffix in readers:
        return readers[path.suffix].read(path, look=look, defaults_of=defaults_of)
    if kind_of(path) in {"file", "special"}:
        raise TaskError(
            f"{text}: a task must be {', '.join(reader.noun for reader in readers.values())} or file.py:function, "
            f"got {path.suffix or 'a file without an ending'!r}: if a plugin reads such files, install it, or take it "
            f"out of {SWITCH}"
        )
    if kind_of(path) == "folder":
        raise TaskError(f"{text}: no task.toml in this folder: `tuner init {text}` writes one for a folder of photos")
    raise TaskError(
        f"no task {text!r}{nearest(text, builtin)}: give a task.toml, file.py:function, "
        f"or a built-in ({', '.join(sorted(builtin)) or 'none here'})"
    )


#: Its name until paths were taken too.
load_task = open_task


def task_from_function(path: Path, function: str) -> Task:
    """Import a Python file and call a function of it, which takes no arguments and returns a `Task`.

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
    lines = [None, *(frame.lineno for frame in frames if frame.filename == str(path))]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1]
    message = (str(error).splitlines() or [""])[0]
    return f"{path}{f':{line}' if line else ''} raised {type(error).__name__}: {message}"
