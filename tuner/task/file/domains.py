"""The data of one section of a task file: its entries, and the domain they make."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TaskError
from tuner.targets import Targets
from tuner.task.data.entry import Entry, EntrySource, without_labels
from tuner.task.data.npz import PartitionName
from tuner.task.data.readable import FileCheck
from tuner.task.data.samples import Samples, Subset
from tuner.task.file.labels import as_rows
from tuner.task.file.sections import path_of
from tuner.task.inputs import input_kind
from tuner.task.partition import recording_holdout, session_holdout, stratified_holdout
from tuner.task.spec import InputSpec
from tuner.task.task import Domain

if TYPE_CHECKING:
    from tuner.task.file.schema import DataSection


def read_entries(
    section: "DataSection",
    folder: Path,
    spec: InputSpec,
    targets: Targets,
    check: FileCheck | None,
    recording: str | None = None,
) -> dict[PartitionName, Entry]:
    """Read the entries of ``[local]`` or ``[global]``; the other arguments are those of `EntrySource`.

    Raises:
        TaskError: An entry cannot be read, or two partitions share data.
    """
    paths: tuple[tuple[PartitionName, str | None], ...] = (
        ("train", section.train),
        ("val", section.val),
        ("test", section.test),
    )
    labelled = getattr(section, "labels", "given") == "given"
    entries, kind = dict[PartitionName, Entry](), input_kind(spec.kind)
    for partition, text in paths:
        if text is None:
            continue
        path = path_of(text, folder)
        names = entries["train"].names if "train" in entries else ()
        source = EntrySource(path, partition, spec, targets, labelled, names, recording, check)
        entry = kind.entry(source) if labelled else without_labels(kind.entry(source), targets)
        twin = next((name for name, other in entries.items() if _sources(other) & _sources(entry)), None)
        if twin is not None:
            raise TaskError(
                f"{entry.source}: is both {twin} and {partition}, so scores would be measured on samples already seen: "
                f"give other data, or leave {partition} out"
            )
        entries[partition] = entry
    return entries


def refuse_shared_recordings(local: Mapping[PartitionName, Entry], global_: Mapping[PartitionName, Entry]) -> None:
    """Refuse recordings that one of ``[local]`` and ``[global]`` trains on and the other is scored on."""
    for learned, scored, title, other in ((local, global_, "local", "global"), (global_, local, "global", "local")):
        train = learned["train"]
        for partition, entry in scored.items():
            is_scored = partition != "train" or "val" not in scored  # else a part of it is held out
            shared = _sources(train) & _sources(entry)
            if is_scored and shared and all(one.origin is not None and one.origin.names for one in (train, entry)):
                raise TaskError(
                    f"{entry.source}: {title}.train and {other}.{partition} share the recording {min(shared)!r}, so "
                    "scores would be measured on what was trained on: give other data"
                )


def domain_of(
    title: str, entries: Mapping[PartitionName, Entry], rows: Mapping[str, int] | None, outputs: int
) -> Domain:
    """Return the domain ``"local"`` or ``"global"``; a missing validation partition is held out from training.

    `rows` of the union head are by class name, and None where entries have targets instead of classes.

    Raises:
        TaskError: A label occurs that the training data lacks, or nothing can be held out.
    """
    partitions: dict[PartitionName, Samples] = {
        name: entry.build(entry.targets if rows is None else as_rows(entry, rows, outputs, f"{title}.{name}"))
        for name, entry in entries.items()
    }
    if "val" in partitions:
        train, val = partitions["train"], partitions["val"]
    else:
        train, val = _held_out(title, entries["train"], partitions["train"])
    return Domain(train, val, partitions.get("test"))


def _held_out(title: str, entry: Entry, samples: Samples) -> tuple[Subset, Subset]:
    """Divide training samples into those that stay and the validation samples."""
    if entry.origin is None:
        noun, (rest, held_out) = "samples", stratified_holdout(samples.labels)
    elif not entry.origin.names:
        noun, (rest, held_out) = "photos", session_holdout(samples.labels, entry.origin.recordings)
    else:
        origin = entry.origin
        noun, (rest, held_out) = "recordings", recording_holdout(samples.labels, origin.recordings, origin.sessions)
    if len(held_out) == 0:
        raise TaskError(f"{entry.source}: no class has two {noun}, so none can be held out: give {title}.val")
    return Subset(samples, rest), Subset(samples, held_out)


def _sources(entry: Entry) -> set[str]:
    return set(entry.origin.names) if entry.origin is not None and entry.origin.names else {entry.source}
