"""The commands that are useful after a run: copied from the screen, they work as they stand."""

import shlex
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path

from tuner.commands.runs.source import shown_place
from tuner.results.records.config import RunRequest, option_name
from tuner.results.run import Run


def continue_command(task: str, request: RunRequest, folder: Path | None, *, as_json: bool = False) -> str:
    """Return the command that continues a run.

    Args:
        task: As it was given.
        request: What was asked; a study's address is shown without its password.
        folder: The run's folder; None where nothing was begun.
        as_json: Whether the result was asked for as JSON.
    """
    if request.study is not None:
        request = replace(request, study=shown_place(request.study))
    if folder is not None:
        request = replace(request, out=folder, resume=True)
    words = ["tuner", "run", task]
    for one in fields(RunRequest):
        value, option = getattr(request, one.name), f"--{option_name(one.name)}"
        if value is True:
            words.append(option)
        elif value != one.default:
            values = value if isinstance(value, list | tuple) else (value,)
            words += [word for each in values for word in (option, str(each))]
    return shlex.join([*words, "--json"] if as_json else words)


def next_commands(run: Run, artifacts: str | Path | None = None) -> Iterable[str]:
    """Yield commands that use a finished run; none where its front is empty.

    Args:
        run: The run.
        artifacts: Where workers of its study put the weights of the front; this folder has those of its own trials.
    """
    folder, bundle = str(run.folder), f"{run.folder.name}-bundle"
    if run.front:
        yield shlex.join(["tuner", "show", folder, str(run.front[0] if run.best is None else run.best)])
        if artifacts is None:
            yield shlex.join(["tuner", "export", folder, bundle])
        else:
            yield shlex.join(["tuner", "export", run.info.config.study, bundle, "--artifacts", str(artifacts)])
