"""The feature store as text."""

import time
from collections.abc import Sequence

from tuner.commands.store import StoreFile
from tuner.units import format_bytes


def format_store(files: Sequence[StoreFile]) -> str:
    """Return the list for people."""
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
