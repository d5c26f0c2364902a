"""What a data entry of a task file lists: samples, and labels in the entry's own class names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.arrays import Labels, RowNumbers
from tuner.errors import TaskError
from tuner.targets import Targets
from tuner.targets.strata import occurring
from tuner.task.data.npz import PartitionName
from tuner.task.data.readable import FileCheck
from tuner.task.data.samples import Samples
from tuner.task.spec import InputSpec


@dataclass(frozen=True, slots=True)
class EntrySource:
    """An entry of a task file, before it is read.

    Attributes:
        path: Its absolute path, where there may be nothing.
        partition: Name of its partition.
        spec: Input of the model.
        targets: What a sample's label is.
        labelled: Whether its labels are needed.
        names: Class names of the training entry, for one that has none of its own.
        recording: ``input.recording`` of the file.
        check: Looks at files, and notes those that cannot be read; without it none is opened for this.
    """

    path: Path
    partition: PartitionName
    spec: InputSpec
    targets: Targets
    labelled: bool = True
    names: tuple[str, ...] = ()
    recording: str | None = None
    check: FileCheck | None = None


@dataclass(frozen=True)
class Origin:
    """The recordings that samples are windows of, so that no recording has windows in two partitions.

    Attributes:
        names: Names of the recordings; none for sessions of photos, which are divided where a class has one only.
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
        targets: Places in `names`: int64 [n], or multi-hot float32 [n, len(names)]; or numbers, float32 [n,
            len(names)], where `names` are those of the outputs.
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
