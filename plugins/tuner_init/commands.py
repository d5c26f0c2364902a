"""The command ``tuner init``, and its text."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tuner.cli.options import Fetch, Json, OutFile, document, print_line, progress
from tuner.distribution import fetching
from tuner.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner_init.prepare import Prepared

MOST_NAMED = 5
#: Balance of the classes that is worth a line, and training samples of a class that are few.
UNEVEN, FEW = 5.0, 10


def init(
    data: Path,
    /,
    *,
    model: str | None = None,
    weights: str | None = None,
    global_: Annotated[Path | None, Parameter(name="--global")] = None,
    kind: str | None = None,
    out: OutFile = Path("task.toml"),
    force: bool = False,
    fetch: Fetch = False,
    dry_run: bool = False,
    json_output: Json = False,
) -> None:
    """Look at photos, sounds, recordings, arrays or a table and write a task file with comments; then: tuner run.

    Parameters
    ----------
    data
        A folder with a folder of files for each class; or with train, and maybe val and test, that hold these. Or a
        file of arrays (.npz, .npy), or a table (.csv, .csv#COLUMN of the labels).
    model
        A model of torchvision, timm:NAME.TAG, hf:FOLDER, an ONNX file, or a function of yours, such as net.py:build
        [default: mobilenet_v2 for photos, else a small network].
    weights
        File of the model's weights, or a name that torchvision fetches, such as IMAGENET1K_V1 [default: a local file].
    global_
        Data of classes that the model knows already, to measure what it forgets.
    kind
        Kind of the samples: images, audio, signals or arrays [default: found out].
    out
        The task file.
    force
        Replace the file if it exists.
    dry_run
        Only look at the data: write no file.
    """
    from tuner.task.data.readable import FileCheck
    from tuner_init.prepare import init as prepare

    asked = {"model": model, "weights": weights, "global_": global_, "kind": kind, "out": out, "force": force}
    with fetching(asked=fetch), closing(progress()) as listener:
        listener.phase("looking at the data")
        silent, FileCheck.hear = FileCheck.hear, staticmethod(lambda done, of: listener.step("files", done, of))
        try:
            prepared = prepare(data, dry_run=dry_run, **asked)  # type: ignore[arg-type]  # each has its own type
        finally:
            FileCheck.hear = staticmethod(silent)
    print_line(document("init-1", asdict(prepared)) if json_output else format_prepared(prepared, dry_run=dry_run))


def format_prepared(prepared: "Prepared", *, dry_run: bool = False) -> str:
    """Return what was found, what a run would do with it, and the commands to try next."""
    task = printable(str(prepared.task))
    if dry_run:
        return f"{format_found(prepared)}\nwrote nothing: without --dry-run, {task}"
    name = "" if task == "task.toml" else f" {shlex.quote(task)}"
    return f"""{format_found(prepared)}
{format_prospect(prepared)}
wrote {task}: read its comments, then
  tuner run{name} --dry-run    what would be tried, and what fits; trains nothing
  tuner run{name} --time 10m   tries it"""


def format_found(prepared: "Prepared") -> str:
    """Return what was found in the data, and what a run would do with it."""
    return "\n".join((*_samples(prepared), *_findings(prepared), *_setting(prepared)))


def format_prospect(prepared: "Prepared") -> str:
    """Return how long a run takes, and how far its score can be trusted."""
    from tuner.metrics import wilson
    from tuner.results.records.config import RunRequest
    from tuner.search.space import load_space

    counts = prepared.survey.classes
    val = sum(count.val for count in counts)
    low, high = wilson(0.9, val)
    limit = load_space(RunRequest().space).limits["time"]
    return (
        f"a run takes at most {limit}, less where nothing is left to gain (--time)\n"
        f"guessing among {len(counts)} classes would be right {100 / len(counts):.0f} % of the time; with {val:,} "
        f"validation {prepared.noun}, a score of 90 % means {100 * low:.0f} to {100 * high:.0f} %"
    )


def _samples(prepared: "Prepared") -> Iterator[str]:
    counts = prepared.survey.classes
    train, val, test = (sum(getattr(count, part) for count in counts) for part in ("train", "val", "test"))
    noun = prepared.noun
    source = (
        f"from {printable(str(prepared.val))}" if prepared.val else "held out of these, about a fifth of each class"
    )
    tested = f", {test:,} to test once" if test else ""
    place = printable(str(prepared.train))
    yield f"{place}: {len(counts)} classes, {train:,} {noun} to train on, {val:,} to validate with ({source}){tested}"
    width = max(len(printable(count.name)) for count in counts)
    yield f"  {'class':<{width}}  train    val" + ("   test" if test else "")
    for count in counts:
        row = f"  {printable(count.name):<{width}}  {count.train:>5,}  {count.val:>5,}"
        yield row + (f"  {count.test:>5,}" if test else "")


def _findings(prepared: "Prepared") -> Iterator[str]:
    survey, noun = prepared.survey, prepared.noun
    if survey.short_sides is not None:
        yield from _sides(*survey.short_sides, prepared.size or 0)
    few = [printable(count.name) for count in survey.classes if count.train < FEW]
    if few:
        yield f"warning: fewer than {FEW} {noun} to train on: {_some(few)}"
    if survey.balance > UNEVEN:
        yield f"warning: the largest class has {survey.balance:.0f} times as many {noun} as the smallest"
    if survey.leaks:
        pairs = [f"{printable(one)} = {printable(other)}" for one, other in survey.leaks]
        yield (
            f"warning: {_count(survey.leaks, noun)} in train and also in val or test, so scores would be too good; "
            f"remove one of each: {_some(pairs)}"
        )
    if survey.conflicts:
        pairs = [f"{printable(one)} = {printable(other)}" for one, other in survey.conflicts]
        yield f"warning: {_count(survey.conflicts, noun)} in two classes; remove the wrong one: {_some(pairs)}"
    if survey.repeats:
        yield f"copies of another {_singular(noun)} in the same class of train: {survey.repeats:,}"
    sessions, photos = survey.sessions
    if sessions:
        yield (
            f"sessions: {photos:,} photos were taken in the same minute as another, in {sessions:,} sessions, "
            "which are kept on one side of the division where a class has several (input.recording)"
        )
    yield from map(printable, survey.findings)
    if survey.unreadable:
        from tuner.task.data.readable import by_reason

        count = len(survey.unreadable)
        what = "it" if count == 1 else f"these {count:,}"
        yield f"warning: left out, as {what} cannot be read: {printable(by_reason(survey.unreadable))}"
    elif not any(finding.startswith("warning:") for finding in survey.findings):
        yield "every file can be read" if noun != "photos" else "every photo can be read"


def _sides(smallest: int, median: int, largest: int, size: int) -> Iterator[str]:
    sides = f"{smallest}" if smallest == largest else f"{smallest} to {largest}, median {median}"
    yield f"shorter side: {sides} pixels; the model sees {size} × {size}"
    if median < size:
        yield f"warning: most photos are smaller than the {size} pixels that the model sees, so they are enlarged"


def _setting(prepared: "Prepared") -> Iterator[str]:
    weights = "" if prepared.weights is None else f" with {printable(prepared.weights)}"
    yield f"model: {printable(prepared.model)}{weights}"
    if len(prepared.candidates) > 1:
        names = ", ".join(map(printable, prepared.candidates))
        yield f"  or let a run choose: --model A --model B, or model.candidates in the task file; here: {names}"
    if prepared.about:
        yield f"  {printable(prepared.about)}"
    elif prepared.model.startswith("tuner") and prepared.weights is None:
        yield "  a small network that learns from the beginning; --model net.onnx or net.py:build: one that knows more"
    elif prepared.model.startswith("timm:") and "." not in prepared.model and prepared.weights is None:
        yield f"  its weights are random: it learns from the beginning; --model {prepared.model}.TAG: trained ones"
    elif prepared.global_classes is None:
        yield (
            f"global: what the model forgets is not measured; to measure it, give {prepared.noun} of classes that it "
            "knows: --global FOLDER"
        )
    if prepared.global_classes is not None:
        rows = f"by {printable(str(prepared.classes_file))}" if prepared.classes_file else "without a classes.tsv"
        yield f"global: {prepared.global_classes} classes that the model knows, {rows}; what it forgets is measured"
    yield from map(printable, prepared.cautions)


def _singular(noun: str) -> str:
    return "patch" if noun == "patches" else noun.removesuffix("s")


def _count(files: Sequence[object], noun: str) -> str:
    return f"1 {_singular(noun)} is" if len(files) == 1 else f"{len(files):,} {noun} are"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join((*names[:MOST_NAMED], *((f"and {more:,} more",) if more > 0 else ())))


def task_of_data(data: str, run: Path | None, say: "Callable[[str], object]", models: Sequence[str] = ()) -> str:
    """Return the task file of data that `tuner run` was given; what was found is said where it is written."""
    from tuner_init.prepare import task_of_data

    return str(task_of_data(Path(data), run, lambda prepared: say(format_found(prepared)), models))
