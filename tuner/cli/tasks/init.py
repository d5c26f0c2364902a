"""The command that writes a task file: init."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, OutFile, print_line


def init(
    photos: Path,
    /,
    *,
    model: str = "mobilenet_v2",
    weights: str | None = None,
    global_: Annotated[Path | None, Parameter(name="--global")] = None,
    out: OutFile = Path("task.toml"),
    force: bool = False,
    json_output: Json = False,
) -> None:
    """Look at a folder of photos and write a task file for them, with comments; then: tuner run.

    Parameters
    ----------
    photos
        A folder with a folder of photos for each class; or with train, and maybe val and test, that hold these.
    model
        A model of torchvision, such as resnet18, or a function of yours that builds one, such as net.py:build.
    weights
        File of the model's weights, or a name that torchvision fetches, such as IMAGENET1K_V1 [default: a file here].
    global_
        Photos of classes that the model knows already, to measure what it forgets.
    out
        The task file.
    force
        Replace the file if it exists.
    """
    from tuner.cli.text.init import format_prepared
    from tuner.commands.tasks.init import init as prepare

    prepared = prepare(photos, model=model, weights=weights, global_=global_, out=out, force=force)
    print_line(json.dumps(asdict(prepared), default=str) if json_output else format_prepared(prepared))
