"""The commands that are useful after a run: copied from the screen, they work as they stand."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner.results.run import Run


def continue_command(task: str, options: Mapping[str, object], folder: Path | None) -> str:
    """Return the command that continues a run.

    Args:
        task: As it was given.
        options: Values by the names of options, with ``resume``; those that are None, False or empty are left out.
        folder: The run's folder; None where nothing was begun.
    """
    words = ["tuner", "run", task]
    given = options if folder is None else {**options, "out": folder, "resume": True}
    for name, value in given.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for one in values for word in (f"--{name}", str(one))]
    return shlex.join(words)


def next_commands(run: Run, artifacts: str | None = None) -> Iterable[str]:
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
            yield shlex.join(["tuner", "export", run.info.config.study, bundle, "--artifacts", artifacts])
