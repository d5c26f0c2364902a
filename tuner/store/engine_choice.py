"""The engine that computes a task's prefix on this device: measured once, chosen once, part of every key."""

from pathlib import Path

from tuner.files import write_private
from tuner.reading import read_bytes
from tuner.store.files.disk import full_disk_as_store_full
from tuner.store.store import Store

DEFAULT = "torch-fp32"
MOST_NAME_BYTES = 1000


def chosen_engine(folder: Path, model: str, threads: int) -> str:
    """Return the engine chosen for a model in this store; the default where none was chosen yet.

    Args:
        folder: Folder of the store.
        model: Fingerprint of the model.
        threads: Threads that the engine runs with.
    """
    try:
        return read_bytes(_path(folder, model, threads), MOST_NAME_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return DEFAULT


def choose_engine(store: Store, model: str, threads: int, kind: str) -> None:
    """Choose an engine, unless one was chosen before: stored features stay usable.

    Raises:
        StoreFull: The choice cannot be written; the default stays.
    """
    path = _path(store.folder, model, threads)
    with store.lock, full_disk_as_store_full(store.folder):
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, kind)


def _path(folder: Path, model: str, threads: int) -> Path:
    return folder / "kinds" / f"{model}-{threads}"
