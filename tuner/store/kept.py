"""Small files next to the records: the engine of a prefix, the scales of a cut, and what exits begin with.

Each is measured or learned once, whole or not there at all, and a damaged one counts as none.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats
from tuner.files import remove_parts, write_private
from tuner.reading import read_bytes
from tuner.store.codec import Codec
from tuner.store.files.disk import full_disk_as_store_full
from tuner.store.files.header import StoreKey
from tuner.store.store import STARTS, Store
from tuner.untrusted import MOST_BYTES

DEFAULT_ENGINE = "torch-fp32"
_MOST_NAME_BYTES, _MOST_START_BYTES = 1000, 2**30
_DIGEST_BYTES = 16
Scales = tuple[Floats, Floats, str]


def chosen_engine(folder: Path, model: str, threads: int) -> str:
    """Return the engine chosen for a model, by its fingerprint, in this store; the default where none was yet."""
    try:
        return read_bytes(_engine_file(folder, model, threads), _MOST_NAME_BYTES).decode()
    except (OSError, UnicodeDecodeError):
        return DEFAULT_ENGINE


def choose_engine(store: Store, model: str, threads: int, kind: str) -> None:
    """Choose an engine, unless one was chosen before: stored features stay usable."""
    path = _engine_file(store.folder, model, threads)
    with store.lock:
        if not path.exists():
            _write(path, kind.encode())


def read_scales(folder: Path, key: StoreKey, task: str) -> Scales | None:
    """Return (low [C], high [C], their hash as a key names it); None where there are none, or damaged ones.

    The width in the key does not matter; `task` names the calibration set.
    """
    body = _read_checked(_scales_file(folder, key, task), MOST_BYTES)
    if body is None or len(body) % 8:
        return None
    low, high = np.frombuffer(body, np.float32).reshape(2, -1)
    return scales(key, low, high)


def write_scales(store: Store, key: StoreKey, task: str, low: Floats, high: Floats) -> Scales:
    """Store the scales of a cut; return the stored ones, which another process may have written first."""
    with store.lock:
        stored = read_scales(store.folder, key, task)
        if stored is not None:
            return stored
        body = np.stack([low, high]).astype(np.float32).tobytes()
        _write(_scales_file(store.folder, key, task), _digest(body) + body)
    return scales(key, low, high)


def scales(key: StoreKey, low: Floats, high: Floats) -> Scales:
    """Return scales with their hash."""
    return low, high, Codec(8, key.shape, low, high).scales


def start_name(*identity: str) -> str:
    """Return the name of a start: 32 hex digits that differ where any part of its identity does."""
    return _digest("\n".join(identity).encode()).hex()


def sample_set(ids: Sequence[str], labels: Array) -> str:
    """Return a hash of some samples and their labels, in their order."""
    return _digest("\n".join(ids).encode(), np.ascontiguousarray(labels).tobytes()).hex()


def read_start(folder: Path, name: str) -> dict[str, Array] | None:
    """Return the tensors of a start; None where there is none, or a damaged one."""
    from safetensors.numpy import load

    body = _read_checked(_start_file(folder, name), _MOST_START_BYTES)
    return None if body is None else load(body)


def write_start(store: Store, name: str, tensors: Mapping[str, Array]) -> None:
    """Keep a start: it is there whole or not at all, whatever ends the process."""
    from safetensors.numpy import save

    body = save({key: np.asarray(value, order="C") for key, value in tensors.items()})
    path = _start_file(store.folder, name)
    with store.lock:
        store.admit(_DIGEST_BYTES + len(body), path)
        remove_parts(path)
        _write(path, _digest(body) + body)


def _engine_file(folder: Path, model: str, threads: int) -> Path:
    return folder / "kinds" / f"{model}-{threads}"


def _scales_file(folder: Path, key: StoreKey, task: str) -> Path:
    identity = f"{key.prefix} {key.preprocessing} {key.kind} {key.cut} {task}"
    return folder / "scales" / f"{_digest(identity.encode()).hex()}.bin"


def _start_file(folder: Path, name: str) -> Path:
    return folder / STARTS / f"{name}.bin"


def _read_checked(path: Path, most_bytes: int) -> bytes | None:
    """Return a file's content behind its digest; None where it is not there, or not what was written."""
    try:
        content = read_bytes(path, most_bytes)
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if _digest(body) == digest else None


def _write(path: Path, content: bytes) -> None:
    with full_disk_as_store_full(path.parent.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, content)


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()
