"""The small file that says what a record file holds: magic, format version, length, checksum, then JSON."""

import errno
import hashlib
import json
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import StoreError
from tuner.store.codec import Codec

_MAGIC = b"TUNERREC"
_VERSION = 1
_FRONT = struct.Struct("<8sIII")  # magic, version, bytes of JSON, crc32 of version, length and JSON


class StoreFull(StoreError):  # noqa: N818 - a state the caller answers by recomputing, named for it
    """The bytes do not fit: under the cap, or on the disk."""


class DamagedHeaderError(StoreError):
    """The header is not what was written; nothing beside it can be trusted."""


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Everything that must match for a record to be read as right.

    Attributes:
        prefix: Hash of the prefix's weights, buffers and graph.
        preprocessing: Hash of what is done to an input before the prefix.
        kind: What runs the prefix, and in which precision: `torch-fp32`, `onnxruntime-fp32`, ...
        cut: Name of the cut point.
        bits: Of a code; 16 and 32 are plain numbers.
        shape: Of one sample's features.
        scales: `Codec.scales`, empty at 16 and 32 bits.
    """

    prefix: str
    preprocessing: str
    kind: str
    cut: str
    bits: int
    shape: tuple[int, ...]
    scales: str

    def digest(self) -> str:
        """64 hex digits that differ where any field does."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Header:
    """What a record file is: its key, and the codec its scales make."""

    key: StoreKey
    codec: Codec

    def pack(self) -> bytes:
        """Bytes of the file."""
        scales = [bound.tobytes().hex() for bound in (self.codec.low, self.codec.high) if bound is not None]
        body = json.dumps(asdict(self.key) | {"bounds": scales}, sort_keys=True, separators=(",", ":")).encode()
        return _FRONT.pack(_MAGIC, _VERSION, len(body), _checksum(_VERSION, body)) + body

    def refuse_other(self, key: StoreKey, path: Path) -> None:
        """Refuse to read these records as those of another key.

        Raises:
            StoreError: A field differs; the message names the fields.
        """
        differing = [field.name for field in fields(key) if getattr(key, field.name) != getattr(self.key, field.name)]
        if differing:
            raise StoreError(
                f"{path} holds records of another {', '.join(differing)}; `tuner store clear` removes them"
            )


def read(path: Path) -> Header | None:
    """The header at `path`; `None` where there is none.

    Raises:
        DamagedHeaderError: Any bit differs from what was written.
        StoreError: The header is whole, and of a format this version does not read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _FRONT.size:
        raise DamagedHeaderError(f"{path} is cut short")
    magic, version, length, checksum = _FRONT.unpack_from(content)
    body = content[_FRONT.size :]
    if magic != _MAGIC or length != len(body) or checksum != _checksum(version, body):
        raise DamagedHeaderError(f"{path} is damaged")
    if version != _VERSION:
        raise StoreError(f"{path} has format {version}, this version reads {_VERSION}: `tuner store clear` starts anew")
    held: dict[str, Any] = json.loads(body)
    low, high = [np.frombuffer(bytes.fromhex(bound), "<f4") for bound in held.pop("bounds")] or (None, None)
    key = StoreKey(**held | {"shape": tuple(held["shape"])})
    return Header(key, Codec(key.bits, key.shape, low, high))


def write(path: Path, content: bytes) -> None:
    """Put a small file in place whole: after a kill there is the old one, the new one, or none. Under the store's lock.

    Raises:
        StoreFull: The disk is full.
    """
    draft = path.with_suffix(".draft")
    with full_disk_told(path.parent):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_at(descriptor, content, 0)
            os.fsync(descriptor)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


@contextmanager
def full_disk_told(folder: Path) -> Iterator[None]:
    """Turn the system's errors for a full disk into `StoreFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise StoreFull(f"the disk under {folder} is full") from error
        raise


def write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Write every byte: one call may write fewer than asked."""
    rest = memoryview(content).cast("B")
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def sign(place: Path | int) -> None:
    """Give a file or folder a change time of its own: the kernel may tick every 10 ms only, then two share one."""
    now_ns = time.time_ns()
    os.utime(place, ns=(now_ns, now_ns))


def read_at(descriptor: int, into: memoryview, offset: int) -> int:
    """Fill `into` as far as the file reaches; return how many bytes that was."""
    rest = into
    while rest and (got := os.preadv(descriptor, [rest], offset)):
        rest, offset = rest[got:], offset + got
    return len(into) - len(rest)


def _checksum(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<II", version, len(body))))
