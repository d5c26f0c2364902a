"""A data entry of a task file: a folder of class folders, a CSV manifest, or an ``.npz``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tuner.arrays import Labels, RowNumbers
from tuner.errors import TaskError
from tuner.reading import kind_of
from tuner.targets import Targets
from tuner.targets.strata import occurring
from tuner.task.data.images import check_image
from tuner.task.data.listing import images_below, read_folder, read_manifest
from tuner.task.data.npz import PartitionName, class_names, labels_key, open_npz, samples_key
from tuner.task.data.readable import FileCheck, kept
from tuner.task.data.samples import ArraySamples, FileSamples, Samples
from tuner.task.spec import InputSpec


@dataclass(frozen=True)
class Origin:
    """The recordings that samples are windows of, so that no recording has windows in two partitions.

    Attributes:
        names: Names of the recordings.
        sessions: Session of each recording, as ``"person/session"``; empty where it is unknown.
        recordings: Place in `names` of each sample's recording, int64 [n].
    """

    names: tuple[str, ...]
    sessions: tuple[str, ...]
    recordings: RowNumbers


@dataclass(frozen=True)
class Entry:
    """The samples of an entry, labelled in its own class names; rows of the union head come later.

    Attributes:
        source: What was read, for messages and to notice the same data used twice.
        names: Class names; without a classes file, a name's place is its row in the given head.
        targets: Places in `names`: int64 [n], or multi-hot float32 [n, len(names)]. Of a regression the targets,
            float32 [n, len(names)], and `names` are those of the outputs.
        build: Makes the samples, given their labels as rows of the union head.
        origin: Recordings of samples that are windows of such.
        notes: Files that were changed in a way that a person should know, each with what was done to it.
    """

    source: str
    names: tuple[str, ...]
    targets: Labels
    build: Callable[[Labels], Samples]
    origin: Origin | None = None
    notes: tuple[str, ...] = ()

    def occurring(self) -> tuple[int, ...]:
        """Return the places in `names` that at least one sample has."""
        return occurring(self.targets)


def read_entry(
    path: Path,
    partition: PartitionName,
    spec: InputSpec,
    kind: Targets,
    names: Sequence[str] | None = None,
    check: FileCheck | None = None,
) -> Entry:
    """Read what one entry lists; images stay on disk.

    Args:
        path: Absolute path of a folder, a ``.csv`` or an ``.npz``.
        partition: Which partition to read, as an ``.npz`` may hold several.
        spec: Kind and size of the samples.
        kind: What a sample's label is.
        names: Class names for an ``.npz`` that has none of its own.
        check: Looks at the image files; those that cannot be read are left out. Without it none is opened.

    Raises:
        TaskError: The entry is missing, empty, malformed, or not of the kind.
    """
    if kind_of(path) == "nothing":
        raise no_such_data(path, partition)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _read_arrays(path, partition, spec, kind, names or ())
    folder = kind_of(path) == "folder"
    if not folder and suffix != ".csv":
        raise TaskError(f"{path}: data must be a folder of class folders, a .csv manifest or an .npz, got {suffix!r}")
    if spec.kind == "arrays":
        raise TaskError(f'{path}: kind "arrays" is read from an .npz; for image files set kind = "images"')
    try:
        files, labels = read_folder(path) if folder else read_manifest(path, kind)[:2]
    except OSError as error:
        raise unreadable(error, path) from error
    if not files:
        raise empty_partition(path, partition)
    keep = _readable(files, path, spec, check)
    files, labels = kept(files, keep), kept(labels, keep)
    classes, targets = kind.read_texts(labels, path)
    return Entry(str(path), classes, targets, lambda rows: FileSamples(files, rows, spec))


def read_unlabelled(
    path: Path, partition: PartitionName, spec: InputSpec, kind: Targets, check: FileCheck | None = None
) -> Entry:
    """Read samples without labels: every image anywhere below a folder, a manifest's files, or an ``.npz``'s x.

    Arguments are those of `read_entry`.

    Raises:
        TaskError: As `read_entry`.
    """
    if kind_of(path) == "folder":
        files = images_below(path)
        if not files:
            raise empty_partition(path, partition)
        files = kept(files, _readable(files, path, spec, check))
        entry = Entry(str(path), (), np.zeros(len(files), np.int64), lambda rows: FileSamples(files, rows, spec))
    elif path.suffix.lower() == ".npz":
        with open_npz(path) as file:
            key = samples_key(path, file, partition)
            x = file[key]
        entry = Entry(f"{path}:{key}", (), np.zeros(len(x), np.int64), lambda rows: ArraySamples(x, rows, spec, key))
    else:
        labelled = read_entry(path, partition, spec, kind, check=check)
        entry = Entry(str(path), (), np.zeros(len(labelled.targets), np.int64), labelled.build)
    return without_labels(entry, kind)


def without_labels(entry: Entry, kind: Targets) -> Entry:
    """Return an entry with one class that stands for nothing; where samples may have several labels, none has it."""
    return replace(entry, names=("",), targets=kind.blank(len(entry.targets)))


def no_such_data(path: Path, partition: PartitionName) -> TaskError:
    """Return the error for an entry that does not exist."""
    return TaskError(f"{path}: no such file or folder for the {partition} data: check the path in the task file")


def empty_partition(path: Path | str, partition: PartitionName, noun: str = "sample") -> TaskError:
    """Return the error for an entry that lists nothing."""
    return TaskError(f"{path}: the {partition} partition is empty: it must have at least one {noun}")


def unreadable(error: OSError, path: Path) -> TaskError:
    """Return the error for files that cannot be read."""
    return TaskError(f"{error.filename or path}: cannot be read ({error.strerror}): check permissions")


def _readable(files: Sequence[Path], path: Path, spec: InputSpec, check: FileCheck | None) -> list[bool]:
    """Return which of an entry's images can be decoded; at least one.

    Raises:
        TaskError: None can.
    """
    if check is None:
        return [True] * len(files)
    keep = check.readable(files, lambda file: check_image(file, spec))
    if not any(keep):
        raise check.error(path)
    return keep


def _read_arrays(
    path: Path, partition: PartitionName, spec: InputSpec, kind: Targets, borrowed: Sequence[str]
) -> Entry:
    with open_npz(path) as file:
        x_key = samples_key(path, file, partition, labelled=True)
        x, y, classes = file[x_key], file[labels_key(x_key)], class_names(file)
    where = f"{path}:{x_key}"
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{where}: there must be one label per sample, got {list(x.shape)} and {list(y.shape)}")
    if len(x) == 0:
        raise empty_partition(where, partition)
    names, targets = kind.read_array(where, y, classes, borrowed)
    ArraySamples(x[:1], targets[:1], spec, where)  # reports a wrong shape or type now
    return Entry(where, names, targets, lambda rows: ArraySamples(x, rows, spec, x_key))
