"""What a person should know of their data before anything trains: classes, sizes, and samples that occur twice."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from tuner.reading import kind_of
from tuner.task.copies import copies, repeats
from tuner.task.data.images import short_side
from tuner.task.task import Task


@dataclass(frozen=True, slots=True)
class ClassCount:
    """How many samples of each partition a class has."""

    name: str
    train: int
    val: int
    test: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in the user's data.

    Attributes:
        classes: Count of each class, in the order of the model's head.
        short_sides: Smallest, median and largest short side of photos, in pixels; None where no photos are files.
        leaks: Photos of which the same content is in ``train`` and in ``val`` or ``test``, as pairs of files.
        conflicts: Photos of which the same content is in two classes of ``train``, as pairs of files.
        repeats: Number of photos of ``train`` whose content another one of the same class has.
        unreadable: Files that cannot be read, each with the reason.
        findings: Lines on the files, such as which kinds are left out.
        sessions: Number of sessions of several photos, such as those of the same minute, and of the photos in them.
    """

    classes: tuple[ClassCount, ...]
    short_sides: tuple[int, int, int] | None
    leaks: tuple[tuple[str, str], ...]
    conflicts: tuple[tuple[str, str], ...]
    repeats: int
    unreadable: tuple[str, ...]
    findings: tuple[str, ...] = ()
    sessions: tuple[int, int] = (0, 0)

    @property
    def balance(self) -> float:
        """Largest number of training photos of a class, divided by the smallest."""
        counts = [count.train for count in self.classes]
        return max(counts) / max(1, min(counts))


def survey(task: Task) -> Survey:
    """Look at every local sample of a single-label task: its content, and of photos their size.

    Raises:
        TaskError: A file was removed since the task was loaded.
    """
    partitions = dict(task.local.partitions())
    counts = {name: Counter(samples.labels.tolist()) for name, samples in partitions.items()}
    train = partitions["train"]
    leaks = [
        (train.name(one), samples.name(other))
        for name, samples in partitions.items()
        if name != "train"
        for one, other in copies(train, samples)
    ]
    conflicts, again = repeats(train)
    every = [samples.name(index) for samples in partitions.values() for index in range(len(samples))]
    has_files = task.input.kind == "images" and kind_of(Path(every[0])) == "file"
    sides = list(map(short_side, every)) if has_files else []
    sizes = (min(sides), median_low(sides), max(sides)) if sides else None
    none = Counter[int]()
    classes = tuple(
        ClassCount(task.labels[row], *(counts.get(name, none)[row] for name in ("train", "val", "test")))
        for row in task.local_labels
    )
    return Survey(classes, sizes, tuple(leaks), tuple(conflicts), again, task.skipped, task.findings, _sessions(task))


def _sessions(task: Task) -> tuple[int, int]:
    if task.input.kind != "images":  # of others, what is cut from one recording is held out together anyway
        return 0, 0
    partitions = [task.local.train, task.local.val]
    sizes = Counter(samples.origin(index) for samples in partitions for index in range(len(samples)))
    several = [size for size in sizes.values() if size > 1]
    return len(several), sum(several)
