"""Which engine computes a task's prefix on this device: measured once, chosen once, part of every key."""

from pathlib import Path

from tuner.store.header import full_disk_told, write
from tuner.store.store import Store

DEFAULT = "torch-fp32"


def chosen_kind(folder: Path, model: str, threads: int) -> str:
    """Return the engine chosen for a model in this store; the default where none was chosen yet.

    Args:
        folder: The store's.
        model: Fingerprint of the model.
        threads: The engine runs with.
    """
    try:
        return _path(folder, model, threads).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return DEFAULT


def choose_kind(store: Store, model: str, threads: int, kind: str) -> None:
    """Choose an engine, unless one was chosen before: stored features stay usable.

    Raises:
        StoreFull: The choice cannot be kept; the default holds.
    """
    path = _path(store.folder, model, threads)
    with store.lock, full_disk_told(store.folder):
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write(path, kind.encode())


def _path(folder: Path, model: str, threads: int) -> Path:
    return folder / "kinds" / f"{model}-{threads}"
