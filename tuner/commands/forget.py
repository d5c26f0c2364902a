"""Forget a task: nothing of its samples stays on this device but the files the user keeps."""

from dataclasses import dataclass
from pathlib import Path

from tuner.bundle.format import FILE, Bundle
from tuner.commands.watch import ring_of, rings_of_task
from tuner.errors import TaskError
from tuner.plugin.calls import OverdueError, limited
from tuner.plugin.core import build_host
from tuner.search.processes.supervisor import LOADING_SECONDS
from tuner.store.store import open_store
from tuner.task import Task, load_task


@dataclass(frozen=True, slots=True)
class ForgottenSamples:
    """What was removed of a task.

    Attributes:
        task: Name of the task.
        records: Number of feature records.
        files: Number of record files that held them.
        samples: Number of samples in rings.
    """

    task: str
    records: int
    files: int
    samples: int


def _loaded(task: str) -> Task:
    """Return the task; its own code has so long as elsewhere.

    Raises:
        TaskError: It cannot be loaded, or not in time.
    """
    try:
        with limited(LOADING_SECONDS):
            return load_task(task, build_host().tasks)
    except OverdueError:
        raise TaskError(f"{task}: loading it took longer than {LOADING_SECONDS:.0f} s: correct its code") from None


def forget(task: str, folder: Path | None = None) -> ForgottenSamples:
    """Remove the task's samples from every file of the store, overwriting their records, and from its bundles' rings.

    A file that becomes empty is removed, and so are all quantile scales, which are statistics of samples and are
    computed again when needed. A sample counts as the task's own as long as its file exists unchanged: features of
    photos that were deleted or edited before are removed by `tuner store clear` only.

    Args:
        task: As for `tuner.run`; or the folder of a bundle, whose ring alone is then emptied.
        folder: Folder of the store; by default the user's own.

    Raises:
        TaskError: The task cannot be read, and without it its samples are not known.
    """
    if (Path(task) / FILE).is_file():
        samples = ring_of(Path(task)).clear()
        return ForgottenSamples(Bundle.read(Path(task)).name, records=0, files=0, samples=samples)
    loaded = _loaded(task)
    ids = [
        partition.sample_id(index)
        for domain in (loaded.local, loaded.global_)
        if domain is not None
        for _, partition in domain.partitions()
        for index in range(len(partition))
    ]
    store = open_store(folder)
    records = files = 0
    for stored in store.list():
        if stored.key is None:
            continue
        file = store.file(stored.key)
        removed = file.forget(ids)
        records += removed
        files += bool(removed)
        if removed and not len(file):
            file.close()
            store.evict(stored.path)  # its header holds scales: statistics of the same samples
    for path in (store.folder / "scales").glob("*"):
        path.unlink()
    samples = sum(ring.clear() for ring in rings_of_task(loaded.name))
    return ForgottenSamples(loaded.name, records, files, samples)
