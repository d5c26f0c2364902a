"""The feature store: list its files, clear it."""

from dataclasses import dataclass
from pathlib import Path

from tuner.store.calibrated import forget_calibrated
from tuner.store.store import STARTS, open_store
from tuner.task.data.readable import forget_readable


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One record file of the feature store.

    Attributes:
        file: Name of its folder.
        cut: Name of the cut point; None where the file is damaged, as with `bits` and `kind`.
        bits: Width of a code.
        kind: Engine that computes the features.
        records: Number of feature records.
        bytes: Size on disk.
        seconds_per_record: Time to compute a record again; None where it was never measured.
        last_used: Time of the last use, in seconds since the epoch.
    """

    file: str
    cut: str | None
    bits: int | None
    kind: str | None
    records: int
    bytes: int
    seconds_per_record: float | None
    last_used: float


def clear_store(folder: Path | None) -> int:
    """Delete features, scales, frozen blocks in int8, what exits begin with, and the engine's choice; return the bytes.

    Raises:
        StoreError: A run uses the store, or frozen blocks in int8.
    """
    store = open_store(folder)
    with store.alone():
        freed = forget_calibrated() + store.clear()  # the first may be refused
        with store.lock:
            for path in (path for name in ("scales", "kinds", STARTS) for path in (store.folder / name).glob("*")):
                freed += path.stat().st_size
                path.unlink()
    forget_readable()
    return freed


def store_files(folder: Path | None) -> list[StoreFile]:
    """Return the record files of the store, in the order of eviction."""
    return [
        StoreFile(
            file=file.path.name,
            cut=file.key.cut if file.key else None,
            bits=file.key.bits if file.key else None,
            kind=file.key.kind if file.key else None,
            records=file.records,
            bytes=file.bytes,
            seconds_per_record=file.seconds_per_record,
            last_used=file.last_used,
        )
        for file in open_store(folder).list()
    ]
