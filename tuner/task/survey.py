"""What a person should know of their photos before anything trains: classes, sizes, and photos that occur twice."""

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median_low

from tuner.processors import usable_processors
from tuner.task.data.images import short_side
from tuner.task.task import Task


@dataclass(frozen=True, slots=True)
class ClassCount:
    """How many photos of each partition a class has."""

    name: str
    train: int
    val: int
    test: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in the user's photos.

    Attributes:
        classes: Count of each class, in the order of the model's head.
        short_sides: Smallest, median and largest short side, in pixels.
        leaks: Photos of which the same content is in ``train`` and in ``val`` or ``test``, as pairs of files.
        conflicts: Photos of which the same content is in two classes of ``train``, as pairs of files.
        repeats: Number of photos of ``train`` whose content another one of the same class has.
        unreadable: Files that cannot be read, each with the reason.
        left_out: What is not read of each folder: how many files of which kinds.
    """

    classes: tuple[ClassCount, ...]
    short_sides: tuple[int, int, int]
    leaks: tuple[tuple[str, str], ...]
    conflicts: tuple[tuple[str, str], ...]
    repeats: int
    unreadable: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def balance(self) -> float:
        """Largest number of training photos of a class, divided by the smallest."""
        counts = [count.train for count in self.classes]
        return max(counts) / max(1, min(counts))


def survey(task: Task) -> Survey:
    """Look at every local photo of a single-label task on image files: its content and its size.

    Raises:
        TaskError: A file was removed since the task was loaded.
    """
    partitions = dict(task.local.partitions())
    counts = {name: Counter(samples.labels.tolist()) for name, samples in partitions.items()}
    with ThreadPoolExecutor(usable_processors()) as pool:
        ids = {name: list(pool.map(samples.sample_id, range(len(samples)))) for name, samples in partitions.items()}
    train = partitions["train"]
    known: dict[str, list[int]] = defaultdict(list)
    for index, content in enumerate(ids["train"]):
        known[content].append(index)
    leaks = [
        (train.name(known[content][0]), samples.name(index))
        for name, samples in partitions.items()
        if name != "train"
        for index, content in enumerate(ids[name])
        if content in known
    ]
    conflicts, repeats = [], 0
    for same in known.values():
        for other in same[1:]:
            if train.labels[other] == train.labels[same[0]]:
                repeats += 1
            else:
                conflicts.append((train.name(same[0]), train.name(other)))
    every = [samples.name(index) for samples in partitions.values() for index in range(len(samples))]
    sides = list(map(short_side, every))
    sizes = (min(sides), median_low(sides), max(sides))
    none = Counter[int]()
    classes = tuple(
        ClassCount(task.labels[row], *(counts.get(name, none)[row] for name in ("train", "val", "test")))
        for row in task.local_labels
    )
    return Survey(classes, sizes, tuple(leaks), tuple(conflicts), repeats, task.skipped, task.left_out)
