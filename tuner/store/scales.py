"""The quantile scales of one cut: computed once per task from its calibration set, and stored next to the records."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.files import write_private
from tuner.reading import read_bytes
from tuner.store.codes.codec import Codec
from tuner.store.files.disk import full_disk_as_store_full
from tuner.store.files.header import StoreKey
from tuner.store.store import Store
from tuner.untrusted import MOST_BYTES

Scales = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], str]


def read_scales(folder: Path, key: StoreKey, task: str) -> Scales | None:
    """Return (low [C], high [C], their hash as a key names it); None where there are none, or damaged ones.

    Args:
        folder: Folder of the store.
        key: Key of the cut's records; its width does not matter.
        task: Name of the calibration set.
    """
    try:
        content = read_bytes(_path(folder, key, task), MOST_BYTES)
    except OSError:
        return None
    digest, body = content[:16], content[16:]
    if hashlib.blake2b(body, digest_size=16).digest() != digest or len(body) % 8:
        return None
    low, high = np.frombuffer(body, np.float32).reshape(2, -1)
    return scales(key, low, high)


def write_scales(
    store: Store, key: StoreKey, task: str, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]
) -> Scales:
    """Store the scales of a cut; return the stored ones, which another process may have written first.

    Raises:
        StoreFull: They cannot be written.
    """
    path = _path(store.folder, key, task)
    body = np.stack([low, high]).astype(np.float32).tobytes()
    with store.lock, full_disk_as_store_full(store.folder):
        stored = read_scales(store.folder, key, task)
        if stored is not None:
            return stored
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, hashlib.blake2b(body, digest_size=16).digest() + body)
    return scales(key, low, high)


def scales(key: StoreKey, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]) -> Scales:
    """Return scales with their hash."""
    return low, high, Codec(8, key.shape, low, high).scales


def _path(folder: Path, key: StoreKey, task: str) -> Path:
    identity = f"{key.prefix} {key.preprocessing} {key.kind} {key.cut} {task}"
    name = hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()
    return folder / "scales" / f"{name}.bin"
