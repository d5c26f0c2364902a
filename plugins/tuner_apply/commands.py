"""The command ``tuner apply``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.cli.bundles.bundle import print_bundle
from tuner.cli.options import Json, LocalPlugins, Memory, Time, progress


def apply(
    bundle: Path,
    task: str,
    out: Path,
    /,
    *,
    source: Annotated[str, Parameter(name="--from")] = "bundle",
    plugin: LocalPlugins = (),
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Train a bundle's plan on a task, and write a new bundle that names the given one as its parent.

    Parameters
    ----------
    bundle
        A bundle's folder.
    task
        A task.toml, a file.py:function, or the name of a built-in task.
    out
        The new bundle's folder, which must be empty or not exist yet.
    source
        The weights that training starts from: bundle (the bundle's) or original (the task's).
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner_apply.apply import apply_bundle

    limits = CommandLimits.read(time, memory).within_free()
    with ended_by(limits.end):
        folder = apply_bundle(bundle, task, out, source, progress(), plugin, limits)
    print_bundle(folder, json_output=json_output)
