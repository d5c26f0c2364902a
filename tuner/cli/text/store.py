"""The feature store as text."""

import time
from collections.abc import Sequence

from tuner.commands.store import StoreFile
from tuner.store.calibrated import CalibratedBlocks
from tuner.units import format_bytes


def format_store(files: Sequence[StoreFile], blocks: CalibratedBlocks) -> str:
    """Return the list for people."""
    return "\n".join([_listed(files), *([_described(blocks)] if blocks.files else [])])


def _described(blocks: CalibratedBlocks) -> str:
    files = f"{blocks.files} {'file' if blocks.files == 1 else 'files'}"
    return f"frozen blocks in int8, for all stores: {files}, {format_bytes(blocks.bytes)}, in {blocks.folder}"


def _listed(files: Sequence[StoreFile]) -> str:
    if not files:
        return "the store is empty"
    lines = ["cut                        bits  records       size  last used         engine"]
    for file in files:
        size = format_bytes(file.bytes)
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.last_used))
        line = (
            f"{file.cut or 'damaged':<26} {file.bits or 0:>4}  {file.records:>7,}  {size:>9}  {used}  {file.kind or ''}"
        )
        lines.append(line.rstrip())
    lines.append(f"in all {format_bytes(sum(file.bytes for file in files))}")
    return "\n".join(lines)
