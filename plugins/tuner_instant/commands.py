"""The command ``tuner instant``."""

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, Memory, OutFile, Time, document, print_line, progress, stdout_console

if TYPE_CHECKING:
    from rich.table import Table

    from tuner_instant.heads import Head, Instant


def instant(
    data: Path,
    /,
    *,
    out: OutFile,
    model: Path | None = None,
    global_: Annotated[Path | None, Parameter(name="--global")] = None,
    classes: Path | None = None,
    trainable: bool = False,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Solve for the last layer of an ONNX classifier on photos, in seconds and without PyTorch, and write a bundle.

    Parameters
    ----------
    data
        A folder with a folder of photos for each class; or with train, and maybe val and test, that hold these. Or a
        task.toml, which may name signals or arrays.
    out
        The bundle's folder, which must be empty or not exist yet.
    model
        An ONNX file that ends in one linear layer.
    global_
        Photos of classes that the model knows: these are kept, and what it forgets is measured.
    classes
        File with the rows of these classes in the model's head [default: classes.tsv next to the photos].
    trainable
        Let the bundle learn further photos and forget some; it then holds features of all photos.
    """
    from tuner.cli.fence import guarded
    from tuner.commands.limits import CommandLimits
    from tuner_instant.heads import instant as make

    with closing(progress()) as listener, guarded("tuner instant", CommandLimits.read(time, memory)):
        listener.phase("running the model")
        made = make(data, out, model, global_, classes, trainable=trainable, step=listener.step)
    if json_output:
        print_line(document("instant-1", asdict(made)))
        return
    stdout_console().print(table(made))
    for line in lines(made):
        print_line(line)


def table(made: "Instant") -> "Table":
    """Return the heads that were tried, the picked one marked."""
    from tuner.cli.text.screen import table_of
    from tuner.metrics import percent
    from tuner.units import format_bytes, format_seconds

    def share(values: "dict[str, float]", domain: str) -> str:
        name = f"{domain}_accuracy"
        return percent(values[name], made.samples[f"{domain}.val"]) if name in values else "–"

    rows = [
        [
            f"{'→ ' if at == made.picked else ''}{one.settings.scores}, {_of(one)}",
            f"{one.known:,}",
            share(one.values, "local"),
            share(one.values, "global"),
            format_seconds(one.values["train_seconds"]),
            format_bytes(one.bytes),
        ]
        for at, one in enumerate(made.heads)
    ]
    return table_of(["last layer", "known samples mixed in", "your classes", "known classes", "time", "stored"], rows)


def _of(head: "Head") -> str:
    """Say what a head answers."""
    return "of your classes" if head.settings.gate == "none" else "of your and the known classes"


def lines(made: "Instant") -> Iterator[str]:
    """Return the rest of what is said to people."""
    from tuner.cli.text.bundles import format_bundle
    from tuner.runtime import Bundle
    from tuner.task.data.readable import left_out
    from tuner.units import format_seconds

    scored = {f"{name}_accuracy": made.samples.get(f"{name}.val", 0) for name in ("local", "global")}
    yield from made.notes
    if made.left_out:
        yield left_out(made.left_out)
    spec = made.input
    if spec["mean"]:
        yield f"pixels: side {spec['size']}, mean {spec['mean']}, std {spec['std']}; a task.toml may give others"
    yield format_bundle(Path(made.bundle), Bundle.open(made.bundle).info, scored)
    yield f"made in {format_seconds(made.seconds)}; then: tuner predict {shlex.quote(made.bundle)} PHOTO"
