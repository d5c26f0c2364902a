"""Frozen blocks in int8: made once for a task's samples, kept outside the stores, as exports need them without one."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.errors import StoreError
from tuner.files import cache_folder, cache_place, overwrite, private_folder, write_private
from tuner.machine import this_machine
from tuner.reading import read_bytes
from tuner.store.usage import FILE as USERS
from tuner.store.usage import Usage

#: Blocks of other tasks and models than those used last are deleted.
MOST_BLOCKS = 8
_FOLDER, _MOST_COSTS_BYTES = "int8", 10_000


@dataclass(frozen=True, slots=True)
class CalibratedBlocks:
    """All frozen blocks in int8 on this device: their folder, the number of ONNX files, and the size on disk."""

    folder: Path
    files: int
    bytes: int


def blocks_file(model: str, digest: str) -> Path:
    """Return the file of some frozen blocks, which no other process deletes as long as this one lives.

    Args:
        model: What tells the model and the shape of its input from others.
        digest: Of what else they were made from.
    """
    path = _used(cache_folder() / _FOLDER) / f"{model}-{digest}.onnx"
    if path.exists():
        os.utime(path)
    return path


def has_blocks(model: str) -> bool:
    """Return whether there are blocks of a model: of this task, as far as can be known without its samples."""
    return any((cache_folder() / _FOLDER).glob(f"{model}-*.onnx"))


def keep_recent(folder: Path) -> None:
    """Delete the blocks that were used longest ago, with their costs, if there are too many and no other uses any."""
    with suppress(StoreError), _mark(folder).alone(patience=0):
        by_age = sorted(folder.glob("*.onnx"), key=lambda path: -path.stat().st_mtime)
        for path in by_age[MOST_BLOCKS:]:
            _delete(folder.glob(f"{path.stem}.*"))


def read_costs(blocks: Path, cut: int) -> dict[str, Any]:
    """Return what a prediction with the blocks before a cut costs on this device; nothing where it was not measured."""
    try:
        content = json.loads(read_bytes(_costs_file(blocks, cut), _MOST_COSTS_BYTES))
    except (OSError, ValueError):
        return {}
    is_flat = isinstance(content, dict) and all(isinstance(value, int | float) for value in content.values())
    return content if is_flat else {}


def write_costs(blocks: Path, cut: int, costs: Mapping[str, float]) -> None:
    """Keep what a prediction costs on this device."""
    write_private(_costs_file(blocks, cut), json.dumps(costs))


def calibrated_blocks() -> CalibratedBlocks:
    """Return what there is."""
    folder = cache_place() / _FOLDER
    return CalibratedBlocks(folder, len(list(folder.glob("*.onnx"))), sum(map(_size, _all(folder))))


def forget_calibrated() -> int:
    """Overwrite and delete all frozen blocks in int8, unless others use them; return the bytes freed."""
    folder, freed = cache_folder() / _FOLDER, 0
    if folder.exists():
        _used(folder)
        with _mark(folder).alone():
            freed = _delete(_all(folder))
    return freed


def _all(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.name != USERS]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # another process has just deleted it, or given a draft its name
        return 0


def _delete(paths: Iterable[Path]) -> int:
    """Overwrite and delete files; return their bytes."""
    freed = 0
    for path in paths:
        freed += _size(path)
        overwrite(path)
        path.unlink()
    return freed


def _used(folder: Path) -> Path:
    """Return the folder, made where there is none, with a mark that this process uses it."""
    private_folder(folder)
    _mark(folder)
    return folder


@lru_cache(maxsize=1)
def _mark(folder: Path) -> Usage:
    return Usage(folder)


def _costs_file(blocks: Path, cut: int) -> Path:
    """Return a file of this device: a home folder may be another device's too."""
    device = hashlib.blake2b(this_machine().encode(), digest_size=8).hexdigest()
    return blocks.with_suffix(f".{cut}.{device}.json")
