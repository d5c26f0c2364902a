"""Forget a task: nothing of its samples stays on this device but the files the user keeps."""

from pathlib import Path
from typing import Any

from tuner.folders import open_store
from tuner.host import Host
from tuner.task import load_task


def forget(task: str, folder: Path | None = None) -> dict[str, Any]:
    """Remove the task's samples from every file of the store, overwriting their records.

    Quantile scales, which are statistics of several tasks' samples, are removed too; they are found again when needed.

    Args:
        task: As for `tuner.run`.
        folder: The store's; by default the user's own.

    Returns:
        How many records of how many files were removed.

    Raises:
        TaskError: The task cannot be read: without it there is no telling which samples are its own.
    """
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
        removed = store.file(stored.key).forget(ids)
        records += removed
        files += bool(removed)
    for path in (store.folder / "scales").glob("*"):
        path.unlink()
    return {"task": loaded.name, "records": records, "files": files}
