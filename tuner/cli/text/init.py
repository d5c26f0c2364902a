"""A task file that was written, and what was found in the photos, as text."""

from collections.abc import Iterator, Sequence

from tuner.commands.tasks.init import Prepared
from tuner.printable import printable
from tuner.task.file.draft import SIZE
from tuner.task.survey import Survey

MOST_NAMED = 5
#: Balance of the classes that is worth a line, and training photos of a class that are few.
UNEVEN, FEW = 5.0, 10


def format_prepared(prepared: Prepared) -> str:
    """Return what was found, what a run would do with it, and the commands to try next."""
    task = printable(str(prepared.task))
    name = "" if task == "task.toml" else f" {task}"
    return f"""{format_found(prepared)}
wrote {task}: read its comments, then
  tuner run{name} --dry-run    what would be tried, and what fits; trains nothing
  tuner run{name} --time 10m   tries it"""


def format_found(prepared: Prepared) -> str:
    """Return what was found in the photos, and what a run would do with it."""
    return "\n".join((*_photos(prepared), *_findings(prepared.survey), *_setting(prepared)))


def _photos(prepared: Prepared) -> Iterator[str]:
    counts = prepared.survey.classes
    train, val, test = (sum(getattr(count, part) for count in counts) for part in ("train", "val", "test"))
    source = f"from {printable(str(prepared.val))}" if prepared.val else "held out of these, a fifth of each class"
    tested = f", {test:,} to test once" if test else ""
    place = printable(str(prepared.train))
    yield f"{place}: {len(counts)} classes, {train:,} photos to train on, {val:,} to validate with ({source}){tested}"
    width = max(len(printable(count.name)) for count in counts)
    yield f"  {'class':<{width}}  train    val" + ("   test" if test else "")
    for count in counts:
        row = f"  {printable(count.name):<{width}}  {count.train:>5,}  {count.val:>5,}"
        yield row + (f"  {count.test:>5,}" if test else "")


def _findings(survey: Survey) -> Iterator[str]:
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
    if survey.unreadable:
        files = list(map(printable, survey.unreadable))
        what = "it" if len(files) == 1 else f"these {len(files):,}"
        yield f"warning: left out, as {what} cannot be read: {_some(files)}"
    else:
        yield "every photo can be read"


def _setting(prepared: Prepared) -> Iterator[str]:
    weights = "" if prepared.weights is None else f" with {printable(prepared.weights)}"
    yield f"model: {printable(prepared.model)}{weights}"
    if prepared.global_classes is None:
        yield "global: no photos of classes that the model knows, so forgetting is not measured: --global FOLDER"
    elif prepared.classes_file is None:
        yield (
            f"warning: {prepared.global_classes} global classes without a classes.tsv: the first by name is taken for "
            "row 0 of the model's last layer, and so on (docs/tasks.md, The head)"
        )
    else:
        rows = printable(str(prepared.classes_file))
        yield f"global: {prepared.global_classes} classes that the model knows, by {rows}; forgetting is measured"


def _count(files: Sequence[object]) -> str:
    return "1 photo is" if len(files) == 1 else f"{len(files):,} photos are"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join((*names[:MOST_NAMED], *((f"and {more:,} more",) if more > 0 else ())))
