"""The commands on tasks and models, and their text: init, describe."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Json, Memory, OutFile, Time, document, print_line, progress
from tuner.errors import UsageError
from tuner.printable import printable
from tuner.task.data.readable import FileCheck, by_reason
from tuner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tuner.commands.tasks.describe import PlanDescription, StepDescription, TaskDescription
    from tuner.commands.tasks.init import Prepared
    from tuner.task.survey import Survey

MOST_NAMED = 5
#: Balance of the classes that is worth a line, and training photos of a class that are few.
UNEVEN, FEW = 5.0, 10


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
        File of the model's weights, or a name that torchvision fetches, such as IMAGENET1K_V1 [default: a local file].
    global_
        Photos of classes that the model knows already, to measure what it forgets.
    out
        The task file.
    force
        Replace the file if it exists.
    """
    from tuner.commands.tasks.init import init as prepare

    with closing(progress()) as listener:
        listener.phase("looking at the photos")
        silent, FileCheck.hear = FileCheck.hear, staticmethod(lambda done, of: listener.step("photos", done, of))
        try:
            prepared = prepare(photos, model=model, weights=weights, global_=global_, out=out, force=force)
        finally:
            FileCheck.hear = staticmethod(silent)
    print_line(document("init-1", asdict(prepared)) if json_output else format_prepared(prepared))


def format_prepared(prepared: "Prepared") -> str:
    """Return what was found, what a run would do with it, and the commands to try next."""
    task = printable(str(prepared.task))
    name = "" if task == "task.toml" else f" {task}"
    return f"""{format_found(prepared)}
wrote {task}: read its comments, then
  tuner run{name} --dry-run    what would be tried, and what fits; trains nothing
  tuner run{name} --time 10m   tries it"""


def format_found(prepared: "Prepared") -> str:
    """Return what was found in the photos, and what a run would do with it."""
    return "\n".join((*_photos(prepared), *_findings(prepared.survey), *_setting(prepared)))


def _photos(prepared: "Prepared") -> Iterator[str]:
    counts = prepared.survey.classes
    train, val, test = (sum(getattr(count, part) for count in counts) for part in ("train", "val", "test"))
    source = (
        f"from {printable(str(prepared.val))}" if prepared.val else "held out of these, about a fifth of each class"
    )
    tested = f", {test:,} to test once" if test else ""
    place = printable(str(prepared.train))
    yield f"{place}: {len(counts)} classes, {train:,} photos to train on, {val:,} to validate with ({source}){tested}"
    width = max(len(printable(count.name)) for count in counts)
    yield f"  {'class':<{width}}  train    val" + ("   test" if test else "")
    for count in counts:
        row = f"  {printable(count.name):<{width}}  {count.train:>5,}  {count.val:>5,}"
        yield row + (f"  {count.test:>5,}" if test else "")


def _findings(survey: "Survey") -> Iterator[str]:
    from tuner.task.file.draft import SIZE

    smallest, median, largest = survey.short_sides
    sides = f"{smallest}" if smallest == largest else f"{smallest} to {largest}, median {median}"
    yield f"shorter side: {sides} pixels; the model sees {SIZE} × {SIZE}"
    if median < SIZE:
        yield f"warning: most photos are smaller than the {SIZE} pixels that the model sees, so they are enlarged"
    few = [printable(count.name) for count in survey.classes if count.train < FEW]
    if few:
        yield f"warning: fewer than {FEW} photos to train on: {_some(few)}"
    if survey.balance > UNEVEN:
        yield f"warning: the largest class has {survey.balance:.0f} times as many photos as the smallest"
    if survey.leaks:
        pairs = [f"{printable(one)} = {printable(other)}" for one, other in survey.leaks]
        yield (
            f"warning: {_count(survey.leaks)} in train and also in val or test, so scores would be too good; "
            f"remove one of each: {_some(pairs)}"
        )
    if survey.conflicts:
        pairs = [f"{printable(one)} = {printable(other)}" for one, other in survey.conflicts]
        yield f"warning: {_count(survey.conflicts)} in two classes; remove the wrong one: {_some(pairs)}"
    if survey.repeats:
        yield f"copies of another photo in the same class of train: {survey.repeats:,}"
    sessions, photos = survey.sessions
    if sessions:
        yield (
            f"sessions: {photos:,} photos were taken in the same minute as another, in {sessions:,} sessions, "
            "which are kept on one side of the division where a class has several (input.recording)"
        )
    yield from map(printable, survey.findings)
    if survey.unreadable:
        count = len(survey.unreadable)
        what = "it" if count == 1 else f"these {count:,}"
        yield f"warning: left out, as {what} cannot be read: {printable(by_reason(survey.unreadable))}"
    elif not any(finding.startswith("warning:") for finding in survey.findings):
        yield "every photo can be read"


def _setting(prepared: "Prepared") -> Iterator[str]:
    weights = "" if prepared.weights is None else f" with {printable(prepared.weights)}"
    yield f"model: {printable(prepared.model)}{weights}"
    if prepared.global_classes is None:
        yield "global: no photos of what the model knows, so nobody sees what it forgets of that: --global FOLDER"
    else:
        rows = f"by {printable(str(prepared.classes_file))}" if prepared.classes_file else "without a classes.tsv"
        yield f"global: {prepared.global_classes} classes that the model knows, {rows}; what it forgets is measured"
    yield from map(printable, prepared.cautions)


def _count(files: Sequence[object]) -> str:
    return "1 photo is" if len(files) == 1 else f"{len(files):,} photos are"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join((*names[:MOST_NAMED], *((f"and {more:,} more",) if more > 0 else ())))


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
        A plan.toml, such as a bundle's, whose cost is estimated; only for a task.
    picture
        SVG file to write, with the memory over a training step: of a model.ini, or of a task with --plan.
    """
    from tuner.cli.fence import ended_by, guarded
    from tuner.commands.limits import CommandLimits
    from tuner.commands.tasks.describe import describe_file, describe_task

    limits = CommandLimits.read(time, memory)
    with guarded("describing the model", limits):
        described = describe_file(task, picture)
    if described is not None:
        if plan is not None:
            raise UsageError(f"--plan is for a task, but {task} is a model file: leave it out")
        print_line(document("model-file-1", described.values) if json_output else described.text)
        return
    if picture is not None and plan is None:
        raise UsageError(f"--picture of the task {task!r} shows a plan's step, but there is no --plan: give one")
    with ended_by(limits.end):
        description = describe_task(task, plan, picture, limits)
    print_line(document("describe-1", description.to_dict()) if json_output else format_task(description))


def format_task(description: "TaskDescription") -> str:
    """Return a model's description for people."""
    flops = description.flops / 1e6
    lines = [f"{description.model}: {description.parameters:,} parameters, {flops:,.1f} MFLOPs per sample"]
    if description.note:
        lines.append(description.note)
    if description.traced_by:
        lines.append(f"{len(description.blocks)} blocks, traced by {description.traced_by}")
    width = max(len(block.name) for block in description.blocks)
    lines.append(f"block  {'name':<{width}}  {'input':<16}  MFLOPs  parameters  saved per sample")
    for index, block in enumerate(description.blocks):
        shape = "×".join(map(str, block.in_shape))
        lines.append(
            f"{index:>5}  {block.name:<{width}}  {shape:<16}  {block.flops / 1e6:>6.1f}  "
            f"{block.parameters:>10,}  {format_bytes(block.saved_bytes)}"
        )
    if description.plan is not None:
        lines += _plan_lines(description.plan)
    return "\n".join(lines)


def _plan_lines(plan: "PlanDescription") -> list[str]:
    return [
        plan.sentence,
        f"  supported: {plan.supported}",
        (
            f"  about {format_seconds(plan.train_seconds)} of training, {format_bytes(plan.peak_bytes)} peak memory, "
            f"{format_bytes(plan.storage_bytes)} stored, {plan.flops / 1e9:,.1f} GFLOPs"
        ),
        *_step_lines(plan.step),
    ]


def _step_lines(step: "StepDescription | None") -> list[str]:
    from tuner.planner.memory.summary import memory_lines

    if step is None:
        return ["the training step cannot be planned: PyTorch's eager loop, or another engine, runs it"]
    parts = f" in {step.micro_batches} micro-batches" if step.micro_batches > 1 else ""
    return [
        (
            f"a training step of {step.batch_size} samples{parts}: {step.flops / 1e9:,.2f} GFLOPs, about "
            f"{format_seconds(step.seconds)}; in a trial it runs on the {step.executor} executor"
        ),
        "memory of the step in addition to the weights, as the planned executor runs it:",
        *memory_lines(step.memory),
    ]
