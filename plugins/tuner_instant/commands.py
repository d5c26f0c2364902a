"""The command ``tuner instant``; and ``tuner run`` where the extra ``tune`` is not installed."""

import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, Memory, OutFile, Time, document, print_line, progress, stdout_console
from tuner.results.records.config import RunRequest, option_name

if TYPE_CHECKING:
    from rich.table import Table

    from tuner.commands.limits import CommandLimits
    from tuner.results.records.config import Budget
    from tuner_instant.heads import Head
    from tuner_instant.runs import Asked, Instant, Preview

DEFAULTS = RunRequest()
#: Options of `tuner run` that need no PyTorch.
TAKEN = frozenset({"time", "memory", "storage", "out", "models"})


def run(
    data: Path = Path(),
    /,
    *,
    global_: Annotated[Path | None, Parameter(name="--global")] = None,
    classes: Path | None = None,
    request: RunRequest = DEFAULTS,
    dry_run: bool = False,
    details: bool = False,
    json_output: Json = False,
) -> None:
    """Tune an ONNX classifier without PyTorch: solve for heads at several depths, and write the results as a run.

    This is `tuner run` where PyTorch is not installed. Nothing is trained by steps: each photo is run once, and every
    plan is solved. The other options need the extra tune.

    Parameters
    ----------
    data
        A folder with a folder of photos for each class; or with train, and maybe val and test, that hold these. Or a
        task.toml, which may name signals or arrays.
    global_
        Photos of classes that the model knows: these are kept, and what it forgets is measured.
    classes
        File with the rows of these classes in the model's head [default: classes.tsv next to the photos].
    dry_run
        Show what would be tried; read no photo.
    details
        Show everything that was found, as `tuner show RUN --details` does.
    """
    from tuner.cli.show import show
    from tuner.commands.interruption import terminated_as_interrupted
    from tuner.commands.limits import CommandLimits
    from tuner.results.folder import TRIALS
    from tuner_instant.runs import exporting, needs_training, preview
    from tuner_instant.runs import run as solve

    asked, budget = _asked(data, global_, classes, request)
    if dry_run:
        found = preview(asked)
        print_line(document("instant-dry-run-1", asdict(found)) if json_output else format_preview(found))
        return
    limits = CommandLimits.read(request.time, request.memory)

    def kept() -> str:
        folder = listener.folder
        return f"; {exporting(folder)}" if folder is not None and (folder / TRIALS).exists() else ""

    with closing(progress()) as listener, terminated_as_interrupted(), _guarded("tuner run", limits, kept):
        result = solve(asked, listener, budget, limits.end)
    show(str(result.folder), details=details, json_output=json_output)
    if not json_output:
        print_line(needs_training(result))


@contextmanager
def _guarded(what: str, limits: "CommandLimits", kept: Callable[[], str] = str) -> Iterator[None]:
    """Guard a command; where that ends the process, copies of the network are removed, and the line says what is kept.

    Temporary files of the block go into one folder.
    """
    from tuner.cli.fence import guarded

    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as scratch:

        def leaving() -> str:
            shutil.rmtree(scratch, ignore_errors=True)
            return kept()

        tempfile.tempdir = scratch
        try:
            with guarded(what, limits, leaving):
                yield
        finally:
            tempfile.tempdir = before


def _asked(data: Path, known: Path | None, classes: Path | None, request: RunRequest) -> "tuple[Asked, Budget]":
    """Return what is asked; a `UsageError` names an option that needs PyTorch."""
    from tuner.distribution import install_command
    from tuner.errors import TunerError
    from tuner.reading import kind_of
    from tuner.results.records.config import Budget
    from tuner.units import parse_seconds, parse_size
    from tuner_instant.runs import Asked

    for one in fields(RunRequest):
        if one.name not in TAKEN and getattr(request, one.name) != getattr(DEFAULTS, one.name):
            raise TunerError(
                f"--{option_name(one.name)} is for plans that train, which need PyTorch: leave it out, or "
                f"{install_command('tune')}"
            )
    if len(request.models) > 1:
        raise TunerError(
            f"--model: a run chooses among several with PyTorch: give one ONNX file, or {install_command('tune')}"
        )
    model = Path(request.models[0]) if request.models else None
    if model is None and not any(kind_of(path) == "file" for path in (data, data / "task.toml")):
        raise TunerError(
            "without PyTorch, tuner run needs the ONNX file of a classifier: give --model, or for other networks "
            f"{install_command('tune')}"
        )
    out = None if request.out is None else Path(request.out)
    storage = None if request.storage is None else parse_size(request.storage, "--storage")
    budget = Budget(
        time_seconds=None if request.time is None else parse_seconds(request.time, "--time"),
        memory_bytes=None if request.memory is None else parse_size(request.memory, "--memory"),
        storage_bytes=storage,
    )
    return Asked(data, model, known, classes, out, storage), budget


def format_preview(found: "Preview") -> str:
    """Return a dry run for people."""
    from tuner.units import format_bytes

    samples = ", ".join(f"{count:,} {name}" for name, count in found.samples.items())
    lines = [
        f"{found.task} · {found.model} · {samples}",
        f"{found.plans} plans would be solved for, of {format_bytes(found.storage_bytes)} of features",
        "after block  features   MFLOP  parameters     memory",
    ]
    for number, cut in enumerate(found.cuts, 1):
        lines.append(
            f"{number:>11}  {cut.features:>8,}  {cut.flops / 1e6:>6,.0f}  {cut.parameters:>10,}  "
            f"{format_bytes(cut.peak_bytes):>9}"
        )
    return "\n".join(lines)


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
    from tuner.commands.limits import CommandLimits
    from tuner_instant.runs import instant as make

    with closing(progress()) as listener, _guarded("tuner instant", CommandLimits.read(time, memory)):
        listener.phase("running the model")
        made = make(data, out, model, global_, classes, trainable=trainable, step=listener.step)
    if json_output:
        print_line(document("instant-2", asdict(made)))
        return
    stdout_console().print(table(made))
    for line in lines(made):
        print_line(line)


def table(made: "Instant") -> "Table":
    """Return the heads, the picked one marked."""
    from tuner.cli.text.screen import table_of
    from tuner.metrics import percent
    from tuner.units import format_bytes

    def share(values: "dict[str, float]", domain: str) -> str:
        name = f"{domain}_accuracy"
        return percent(values[name], made.samples[f"{domain}.val"]) if name in values else "–"

    rows = [
        [
            f"{'→ ' if at == made.picked else ''}{one.settings.scores}, {_of(one)}",
            f"{one.known:,}",
            share(one.values, "local"),
            share(one.values, "global"),
            f"{1000 * one.values['mean_latency_seconds']:.3g} ms",
            format_bytes(int(one.values["bundle_bytes"])),
        ]
        for at, one in enumerate(made.heads)
    ]
    titles = ["last layer", "known mixed in", "your classes", "known classes", "to predict", "file"]
    return table_of(titles, rows)


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
