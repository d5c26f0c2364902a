"""Frozen blocks in int8: statistics of a task's samples that are kept outside the store, and forgotten with it."""

from tuner.files import cache_folder

#: Folder in the cache.
INT8_FOLDER = "int8"


def forget_calibrated() -> int:
    """Delete all frozen blocks in int8; return the bytes freed. They are made again when they are needed."""
    freed = 0
    for path in (cache_folder() / INT8_FOLDER).glob("*"):
        freed += path.stat().st_size
        path.unlink()
    return freed
