"""Forget a task: nothing of its samples stays on this device but the files the user keeps."""

from pathlib import Path
from typing import Any

from tuner.folders import open_store
from tuner.host import Host
from tuner.runtime.bundle import FILE, Bundle
from tuner.task import load_task
from tuner.watch import ring_of, rings_of_task


def forget(task: str, folder: Path | None = None) -> dict[str, Any]:
    """Remove the task's samples from every file of the store, overwriting their records, and from its bundles' rings.

    A file that becomes empty is removed, and so are all quantile scales, which are statistics of samples and are found
    again when needed. A sample counts as the task's own as long as its file is there unchanged: of photos deleted or
    edited before, only `tuner store clear` removes the features.

    Args:
        task: As for `tuner.run`; or a bundle's folder, whose ring alone is then emptied.
        folder: The store's; by default the user's own.

    Returns:
        How many records of how many files were removed, and how many samples of rings.

    Raises:
        TaskError: The task cannot be read: without it there is no telling which samples are its own.
    """
    if (Path(task) / FILE).is_file():
        return {"task": Bundle.read(Path(task)).name, "records": 0, "files": 0, "samples": ring_of(Path(task)).clear()}
    loaded = load_task(task, Host().tasks)
    ids = [
        samples.sample_id(index)
        for domain in (loaded.local, loaded.global_)
        if domain is not None
        for _, samples in domain.splits()
        for index in range(len(samples))
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
    return {"task": loaded.name, "records": records, "files": files, "samples": samples}
