"""The quantile scales of one cut: found once per task from its calibration set, and kept beside the records."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.store.codec import Codec
from tuner.store.header import StoreKey, full_disk_told, write
from tuner.store.store import Store

Scales = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], str]


def read_scales(folder: Path, key: StoreKey, task: str) -> Scales | None:
    """Return (low [C], high [C], their hash as a key names it), or None where none can be trusted.

    Args:
        folder: The store's.
        key: Of the cut; its width does not matter.
        task: Names the calibration set.
    """
    try:
        content = _path(folder, key, task).read_bytes()
    except OSError:
        return None
    digest, body = content[:16], content[16:]
    if hashlib.blake2b(body, digest_size=16).digest() != digest or len(body) % 8:
        return None
    low, high = np.frombuffer(body, np.float32).reshape(2, -1)
    return scales(key, low, high)


def keep_scales(
    store: Store, key: StoreKey, task: str, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]
) -> Scales:
    """Keep the scales of a cut, whole or not at all; return those that hold, which another process may have kept first.

    Raises:
        StoreFull: They cannot be kept.
    """
    path = _path(store.folder, key, task)
    body = np.stack([low, high]).astype(np.float32).tobytes()
    with store.lock, full_disk_told(store.folder):
        known = read_scales(store.folder, key, task)
        if known is not None:
            return known
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(path, hashlib.blake2b(body, digest_size=16).digest() + body)
    return scales(key, low, high)


def scales(key: StoreKey, low: npt.NDArray[np.float32], high: npt.NDArray[np.float32]) -> Scales:
    """Return scales with their hash."""
    return low, high, Codec(8, key.shape, low, high).scales


def _path(folder: Path, key: StoreKey, task: str) -> Path:
    said = f"{key.prefix} {key.preprocessing} {key.kind} {key.cut} {task}"
    name = hashlib.blake2b(said.encode(), digest_size=16)
    return folder / "scales" / f"{name.hexdigest()}.bin"
