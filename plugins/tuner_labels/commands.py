"""The commands on labels: of a bundle add, rename, remove and merge; of local data suggest and check."""

from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from tuner.cli.options import Json, Memory, Time, document, print_line

if TYPE_CHECKING:
    from tuner_labels.draft import LabelChange

NewBundle = Annotated[
    Path | None,
    Parameter(
        name=["--out", "-o"],
        help="The new bundle's folder [default: the bundle's own with the next number, such as dogs-2].",
    ),
]

labels_app = App(name="labels", help="Change the labels of a bundle, or compare those of local data with the model's.")


@labels_app.command
def add(
    bundle: Path,
    name: str,
    photos: Annotated[list[Path], Parameter(consume_multiple=True)],
    /,
    *,
    out: NewBundle = None,
    json_output: Json = False,
) -> None:
    """Teach a bundle a new label from some ten photos, without PyTorch, and write it as a new bundle.

    Parameters
    ----------
    bundle
        A bundle's folder, exported with --trainable.
    name
        The new label.
    photos
        Files of the kind that the bundle predicts, or folders of them.
    """
    from tuner_labels.changes import add_label

    with _guarded():
        change = add_label(bundle, name, photos, out)
    _print_change(f"{name!r} added", change, json_output=json_output)


@labels_app.command
def rename(bundle: Path, old: str, new: str, /, *, out: NewBundle = None, json_output: Json = False) -> None:
    """Give a label of a bundle another name, and write it as a new bundle.

    Parameters
    ----------
    bundle
        A bundle's folder.
    old
        The label as it is.
    new
        Its new name.
    """
    from tuner_labels.changes import rename_label

    with _guarded():
        change = rename_label(bundle, old, new, out)
    _print_change(f"{old!r} is {new!r} now", change, json_output=json_output)


@labels_app.command
def remove(bundle: Path, name: str, /, *, out: NewBundle = None, json_output: Json = False) -> None:
    """Take a label out of a bundle, with the samples that have no other, and write it as a new bundle.

    Parameters
    ----------
    bundle
        A bundle's folder, exported with --trainable.
    name
        The label.
    """
    from tuner_labels.changes import remove_label

    with _guarded():
        change = remove_label(bundle, name, out)
    _print_change(f"{name!r} removed", change, json_output=json_output)


@labels_app.command
def merge(
    bundle: Path, first: str, second: str, name: str, /, *, out: NewBundle = None, json_output: Json = False
) -> None:
    """Make one label of two, and write it as a new bundle.

    Parameters
    ----------
    bundle
        A bundle's folder, exported with --trainable.
    first
        One of the labels.
    second
        The other one.
    name
        Their new name, which may be one of theirs.
    """
    from tuner_labels.changes import merge_labels

    with _guarded():
        change = merge_labels(bundle, first, second, name, out)
    _print_change(f"{first!r} and {second!r} are {name!r} now", change, json_output=json_output)


@labels_app.command
def suggest(
    task: str,
    /,
    *,
    by: Literal["both", "names", "model"] = "both",
    out: Path | None = None,
    time: Time = None,
    memory: Memory = None,
    json_output: Json = False,
) -> None:
    """Propose labels of the model for each local label, with scores and example files; nothing is applied.

    Parameters
    ----------
    task
        A task.toml or its folder.
    by
        What the proposals are made from: how alike the names are, what the given model predicts on the local samples,
        or both.
    out
        File to write the first proposals to, with the others as comments: edit it, then name it as map in the section
        [labels] of the task.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.printable import printable
    from tuner_labels.suggestions import format_proposal, suggest_labels, write_suggestions

    limits = CommandLimits.read(time, memory).within_free()
    with ended_by(limits.end):
        suggestions = suggest_labels(task, by, limits)
    if out is not None:
        write_suggestions(suggestions, out)
    if json_output:
        print_line(document("labels-suggest-1", {"suggestions": [asdict(suggestion) for suggestion in suggestions]}))
        return
    for suggestion in suggestions:
        print_line(printable(suggestion.label))
        for proposal in suggestion.proposals:
            print_line(f"  {printable(format_proposal(proposal))}")
        for file in suggestion.examples:
            print_line(f"    {printable(file)}")
    written = (
        f"{out} is written: edit it, then set" if out is not None else "nothing is applied: use --out FILE, or set"
    )
    print_line(f"{written} map in the section [labels] of the task")


@labels_app.command
def check(task: str, /, *, time: Time = None, memory: Memory = None, json_output: Json = False) -> None:
    """List the local training samples whose labels the given model contradicts most.

    Parameters
    ----------
    task
        A task.toml or its folder.
    """
    from tuner.cli.fence import ended_by
    from tuner.commands.limits import CommandLimits
    from tuner.printable import printable
    from tuner_labels.suggestions import contradictions

    limits = CommandLimits.read(time, memory).within_free()
    with ended_by(limits.end):
        found = contradictions(task, limits)
    if json_output:
        print_line(document("labels-check-1", {"contradictions": [one.to_dict() for one in found]}))
        return
    for one in found:
        print_line(
            f"{printable(one.file)}: {printable(one.label)} {100 * one.probability:.0f} %; "
            f"the model finds {printable(one.instead)} {100 * one.instead_probability:.0f} %"
        )


def _guarded() -> AbstractContextManager[None]:
    """Bound the memory of a change, which runs the bundle's graphs and trains in this process."""
    from tuner.cli.fence import guarded
    from tuner.commands.limits import NO_LIMITS

    return guarded("the change of labels", NO_LIMITS)


def _print_change(what: str, change: "LabelChange", *, json_output: bool) -> None:
    """Print in one line what a change of labels came to."""
    from tuner.commands.bundles.held import note_bundle

    note_bundle(Path(change.bundle))
    if json_output:
        print_line(document("labels-change-1", asdict(change)))
        return
    from tuner.printable import printable
    from tuner.runtime import Bundle
    from tuner.units import format_seconds

    text = Bundle.read(Path(change.bundle)).targets.text
    found = "" if change.found is None else f", {text(change.found)} right by leave-one-out"
    parts = [f"{what} ({change.samples:,} samples{found})" if change.samples else what]
    if change.before is not None and change.after is not None:
        accuracies = f"{text(change.before)} right before, {text(change.after)} after"
        parts.append(f"{change.others:,} samples of the other labels: {accuracies}")
    if change.unseen:
        names = ", ".join(change.unseen)
        parts.append(f"the new label is held back, as the bundle has no samples of {names}")
    if change.known_before is not None and change.known_after is not None:
        parts.append(f"global samples: {text(change.known_before)} right before, {text(change.known_after)} after")
    print_line(printable(f"wrote {change.bundle} in {format_seconds(change.seconds)}: {'; '.join(parts)}"))
