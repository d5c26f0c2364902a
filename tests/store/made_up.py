"""Records of random bytes, and files of them."""

from pathlib import Path

import numpy as np

from tuner.arrays import Codes
from tuner.store.codec import Codec
from tuner.store.files.header import StoreKey
from tuner.store.files.records import RecordFile

SHAPE = (4, 3, 3)
PLAIN = StoreKey("prefix", "pixels", "torch-fp32", "f13", 32, SHAPE, "")


def sample(number: int) -> str:
    return f"{number:032x}"


def samples(count: int, first: int = 0) -> list[str]:
    return [sample(number) for number in range(first, first + count)]


def records(count: int, codec: Codec | None = None, seed: int = 0) -> Codes:
    size = (codec or Codec(32, SHAPE)).record_bytes
    return np.random.default_rng(seed).integers(0, 256, (count, size), dtype=np.uint8)


def filled(folder: Path, count: int = 10, batch: int = 3) -> tuple[list[str], Codes]:
    ids, rows = samples(count), records(count)
    with RecordFile.create_or_open(folder, PLAIN) as file:
        for start in range(0, count, batch):
            file.append(ids[start : start + batch], rows[start : start + batch])
    return ids, rows
