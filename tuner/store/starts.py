"""What exits begin with: learned once from a task's global samples, kept next to the records, under the same cap."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.files import remove_parts, write_private
from tuner.reading import read_bytes
from tuner.store.files.disk import full_disk_as_store_full
from tuner.store.store import STARTS, Store

MOST_BYTES = 2**30
_DIGEST_BYTES = 16


def start_name(*identity: str) -> str:
    """Return the name of a start: 32 hex digits that differ where any part of its identity does."""
    return hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()


def sample_set(ids: Sequence[str], labels: Array) -> str:
    """Return a hash of some samples and their labels, in their order."""
    digest = hashlib.blake2b("\n".join(ids).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(labels).tobytes())
    return digest.hexdigest()


def read_start(folder: Path, name: str) -> dict[str, Array] | None:
    """Return the tensors of a start; None where there is none, or a damaged one.

    Args:
        folder: Folder of the store.
        name: As `start_name` returns it.
    """
    from safetensors.numpy import load

    try:
        content = read_bytes(_path(folder, name), MOST_BYTES)
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return load(body) if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() == digest else None


def write_start(store: Store, name: str, tensors: Mapping[str, Array]) -> None:
    """Keep a start: it is there whole or not at all, whatever ends the process.

    Raises:
        StoreFull: There is no room.
    """
    from safetensors.numpy import save

    body = save({key: np.asarray(value, order="C") for key, value in tensors.items()})
    path = _path(store.folder, name)
    with store.lock, full_disk_as_store_full(store.folder):
        store.admit(_DIGEST_BYTES + len(body), path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_parts(path)
        write_private(path, hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() + body)


def _path(folder: Path, name: str) -> Path:
    return folder / STARTS / f"{name}.bin"
