"""Local labels that differ from the model's: each is mapped, declared new, or refused; hierarchies close upward."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TaskError, nearest
from tuner.reading import read_text, same_form
from tuner.targets import Targets
from tuner.targets.strata import moved
from tuner.task.data.entry import Entry
from tuner.task.data.npz import PartitionName
from tuner.task.file.labels import GlobalClass
from tuner.task.file.sections import path_of
from tuner.task.spec import LabelMap

if TYPE_CHECKING:
    from tuner.task.file.schema import LabelsSection

Entries = Mapping[PartitionName, Entry]
Table = Mapping[str, Sequence[str]]
_SEPARATOR = "|"
#: Ends the names of local labels where no rules hold, so that none is taken for one of the model's.
LOCAL = " (local)"


@dataclass(frozen=True)
class LabelRules:
    """The section ``[labels]`` of a task file, `source`.

    Attributes:
        map: Labels of the model by local label.
        new: Local labels that the model does not know.
        parents: More general labels by label.
        is_strict: Whether the rules hold for local labels; else each is new, and its name ends in `LOCAL`.
    """

    source: Path
    map: Table
    new: frozenset[str]
    parents: Table
    is_strict: bool = True

    def closed(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return labels and all that are more general, sorted."""
        found, waiting = set[str](), list(labels)
        while waiting:
            label = waiting.pop()
            if label not in found:
                found.add(label)
                waiting += self.parents.get(label, ())
        return tuple(sorted(found))


def read_rules(section: "LabelsSection", path: Path, kind: Targets) -> LabelRules:
    """Read ``[labels]``; a `TaskError` where it says what a sample cannot have."""
    map_, parents = (_table(value, path, key) for key, value in (("map", section.map), ("parents", section.parents)))
    new = frozenset(map(same_form, section.new))
    if parents and not kind.takes(2):
        raise TaskError(f'{path}: labels.parents gives a sample several labels: set loss.kind = "multi-label"')
    for label, targets in map_.items():
        if not kind.takes(len(targets)):
            raise TaskError(f"{path}: labels.map must map {label!r} to {kind.taken}, got {list(targets)}")
        if label in new:
            raise TaskError(f"{path}: the label {label!r} is in labels.map and in labels.new: remove it from one")
    rules = LabelRules(path, map_, new, parents)
    circular = next((label for label in parents if label in rules.closed(parents[label])), None)
    if circular is not None:
        raise TaskError(f"{path}: labels.parents leads from {circular!r} back to itself: remove one of the steps")
    return rules


def closed_global(
    entries: Entries, listed: Sequence[GlobalClass] | None, rules: LabelRules
) -> dict[PartitionName, Entry]:
    """Return global data by the labels that are shown, and by all that are more general.

    Raises:
        TaskError: ``labels.parents`` names a label that occurs nowhere.
    """
    shown = {item.name: item.label for item in listed or ()}
    known = {shown.get(name, name) for entry in entries.values() for name in entry.names} | set(shown.values())
    known |= rules.new | {parent for parents in rules.parents.values() for parent in parents}
    stray = next((label for label in rules.parents if label not in known), None)
    if stray is not None and rules.is_strict:
        raise TaskError(
            f"{rules.source}: labels.parents names {stray!r}, which is neither a label of the model nor a new one"
            f"{nearest(stray, known)}"
        )
    return {
        partition: _relabelled(
            entry,
            {name: rules.closed([shown.get(name, name)]) for name in entry.names},
            [shown.get(name, name) for name in entry.names],  # their places are rows of the given head
        )
        for partition, entry in entries.items()
    }


def mapped_local(
    entries: Entries, classes: Sequence[GlobalClass], rules: LabelRules
) -> tuple[dict[PartitionName, Entry], LabelMap]:
    """Return local data by the model's labels and by new ones; and the labels that a sample has by one name.

    Such names are those of local labels, and of labels that have more general ones.

    Raises:
        TaskError: A label is neither mapped, new nor the model's; or a rule is for one that no local sample has.
    """
    known = [item.label for item in classes]
    own = {entry.names[place] for entry in entries.values() for place in entry.occurring()}
    stray = next((label for label in (*rules.map, *sorted(rules.new)) if label not in own), None)
    if stray is not None:
        key = "map" if stray in rules.map else "new"
        raise TaskError(
            f"{rules.source}: labels.{key} has {stray!r}, of which there is no local sample{nearest(stray, own)}: "
            "correct or remove it"
        )
    targets = {label: _targets(label, known, rules) if rules.is_strict else (label + LOCAL,) for label in sorted(own)}
    found = (targets if rules.is_strict else {}) | {name: rules.closed([name]) for name in known}
    alike = tuple((label, labels) for label, labels in sorted(found.items()) if labels != (label,))
    return {partition: _relabelled(entry, targets) for partition, entry in entries.items()}, alike


def _targets(label: str, known: Sequence[str], rules: LabelRules) -> tuple[str, ...]:
    """Return the model's labels of a local one, closed upward."""
    folded = {name.casefold(): name for name in reversed(known)}
    if label in rules.map:
        wrong = next((target for target in rules.map[label] if target not in known), None)
        if wrong is not None:
            raise TaskError(
                f"{rules.source}: labels.map maps {label!r} to {wrong!r}, which is no label of the global data"
                f"{nearest(wrong, known)}"
            )
        own: Sequence[str] = rules.map[label]
    elif label in rules.new:
        if label not in known and label.casefold() in folded:
            raise TaskError(
                f"{rules.source}: labels.new has {label!r}, which is the model's {folded[label.casefold()]!r} but for "
                "the case of its letters: remove it from labels.new, or rename the local label"
            )
        own = (label,)
    elif label in known or label.casefold() in folded:
        own = (label if label in known else folded[label.casefold()],)
    else:
        raise TaskError(
            f"{rules.source}: the local label {label!r} is not one of the model's{nearest(label, known)}: map it under "
            "labels.map, or list it in labels.new; `tuner labels suggest` proposes a map"
        )
    closed = rules.closed(own)
    wrong = next((name for name in closed if name not in known and name not in own), None)
    if wrong is not None:
        raise TaskError(
            f"{rules.source}: labels.parents leads from {label!r} to {wrong!r}, which no global sample has"
            f"{nearest(wrong, known)}"
        )
    return closed


def _relabelled(entry: Entry, labels: Mapping[str, Sequence[str]], first: Sequence[str] = ()) -> Entry:
    """Return an entry by new names of each of its own; `first` come first, the others in alphabetical order."""
    added = sorted({label for name in entry.names for label in labels.get(name, ())})
    names = tuple(dict.fromkeys([*first, *added]))
    place = {name: number for number, name in enumerate(names)}
    rows = {at: [place[label] for label in labels.get(name, ())] for at, name in enumerate(entry.names)}
    return replace(entry, names=names, targets=moved(entry.targets, rows, len(names)))


def _table(value: Table | str, path: Path, key: str) -> Table:
    """Return a table of labels: as the task file has it, or from a file with tabs: ``label``, ``label|label``."""
    if not isinstance(value, str):
        return {same_form(label): [same_form(one) for one in labels] for label, labels in value.items()}
    if not value.strip():
        raise TaskError(f"{path}: labels.{key} must be a table, or the name of a file, got an empty name")
    file = path_of(value, path.parent)
    text = same_form(read_text(file, TaskError, f"labels.{key} must be a table, or a UTF-8 file with tabs"))
    table: dict[str, list[str]] = {}
    for line, words in enumerate(text.splitlines(), start=1):
        cells = words.split("\t")
        if not words.strip() or words.startswith("#"):
            continue
        if len(cells) != 2:  # noqa: PLR2004 - a label and its labels
            raise TaskError(
                f"{file}:{line}: a line must be a label, a tab, and labels joined with |, got {words[:80]!r}"
            )
        label = cells[0].strip()
        if label in table:
            raise TaskError(f"{file}:{line}: each label may occur once, got {label!r} again")
        table[label] = [part.strip() for part in cells[1].split(_SEPARATOR) if part.strip()]
    return table
