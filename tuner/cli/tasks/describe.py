"""The command that looks at a model or a plan without training: describe."""

import json
from pathlib import Path

from tuner.cli.options import Json, Memory, Time, print_line
from tuner.errors import UsageError


def describe(
    task: str,
    /,
    *,
    plan: Path | None = None,
    picture: Path | None = None,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Show a model's blocks with FLOPs and bytes; with a plan, the plan's cost and the memory of its training step.

    For an NNTrainer model file (.ini), show its layers and the planned memory of a training step.

    Parameters
    ----------
    task
        A task.toml, a file.py:function, the name of a built-in task, or a model.ini.
    plan
        A plan.toml, as a bundle holds it, to estimate the cost of; only for a task.
    picture
        SVG file to write, with the memory over a training step: of a model.ini, or of a task with --plan.
    """
    from tuner.cli.fence import ended_by, guarded
    from tuner.cli.text.describe import format_task
    from tuner.commands.limits import CommandLimits
    from tuner.commands.tasks.describe import describe_file, describe_task

    limits = CommandLimits.read(time, memory)
    with guarded("describing the model", limits):
        described = describe_file(task, picture)
    if described is not None:
        if plan is not None:
            raise UsageError(f"--plan is for a task, but {task} is a model file: leave it out")
        print_line(json.dumps(described.values) if json_output else described.text)
        return
    if picture is not None and plan is None:
        raise UsageError(f"--picture of the task {task!r} shows a plan's step, but there is no --plan: give one")
    with ended_by(limits.end):
        description = describe_task(task, plan, picture, limits)
    print_line(json.dumps(description.to_dict()) if json_output else format_task(description))
