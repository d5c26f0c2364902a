"""The header of a record file, in a file of its own: magic, format version, length, checksum, then JSON."""

import hashlib
import json
import struct
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from tuner.errors import StoreError, first_line
from tuner.files import remove_parts, write_private
from tuner.reading import read_bytes
from tuner.store.codec import Codec
from tuner.store.files.disk import full_disk_as_store_full
from tuner.untrusted import MOST_BYTES, parse_json, reason_of

_MAGIC = b"TUNERREC"
_VERSION = 1
_FRONT = struct.Struct("<8sIII")  # magic, version, bytes of JSON, crc32 of version, length and JSON


class DamagedHeaderError(StoreError):
    """The header is not what was written; no file next to it can be trusted."""


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Everything that must match for a record to be valid.

    Attributes:
        prefix: Hash of the prefix's weights, buffers and graph.
        preprocessing: Hash of what is done to an input before the prefix.
        kind: Engine that runs the prefix, with its precision: `torch-fp32`, `onnxruntime-fp32`, ...; in int8
            with a hash of the samples that its ranges come from.
        cut: Name of the cut point.
        bits: Width of a code; 16 and 32 are plain numbers.
        shape: Shape of one sample's features.
        scales: `Codec.scales`, empty at 16 and 32 bits.
        per_sample: `Codec.per_sample`.
    """

    prefix: str
    preprocessing: str
    kind: str
    cut: str
    bits: int
    shape: tuple[int, ...]
    scales: str
    per_sample: bool = False

    def digest(self) -> str:
        """Return 64 hex digits that differ where any field does."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Header:
    """What identifies a record file: its key, and the codec with its scales."""

    key: StoreKey
    codec: Codec

    def pack(self) -> bytes:
        """Return the content of the file."""
        scales = [bound.tobytes().hex() for bound in (self.codec.low, self.codec.high) if bound is not None]
        body = json.dumps(asdict(self.key) | {"bounds": scales}, sort_keys=True, separators=(",", ":")).encode()
        return _FRONT.pack(_MAGIC, _VERSION, len(body), _checksum(_VERSION, body)) + body

    def refuse_other(self, key: StoreKey, path: Path) -> None:
        """Refuse to read these records as those of another key; the message names the fields that differ."""
        names = [field.name for field in fields(key)]
        differing = [name for name in names if getattr(key, name) != getattr(self.key, name)]
        if differing:
            raise StoreError(
                f"{path} holds records made with another {', '.join(differing)}; `tuner store clear` removes them"
            )


def read(path: Path) -> Header | None:
    """Return the header at `path`; `None` where there is none.

    Raises:
        DamagedHeaderError: Any bit differs from what was written.
        StoreError: The header is intact, but of a format this version does not read.
    """
    try:
        content = read_bytes(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedHeaderError(f"{path} cannot be read ({reason_of(error)})") from None
    if len(content) < _FRONT.size:
        raise DamagedHeaderError(f"{path} is incomplete")
    magic, version, length, checksum = _FRONT.unpack_from(content)
    body = content[_FRONT.size :]
    if magic != _MAGIC or length != len(body) or checksum != _checksum(version, body):
        raise DamagedHeaderError(f"{path} is damaged")
    if version != _VERSION:
        raise StoreError(f"{path} has format {version}, this version reads {_VERSION}: `tuner store clear` starts anew")
    try:
        values = parse_json(body)
        low, high = [np.frombuffer(bytes.fromhex(bound), "<f4") for bound in values.pop("bounds")] or (None, None)
        key = StoreKey(**values | {"shape": tuple(values["shape"])})
        return Header(key, Codec(key.bits, key.shape, low, high, key.per_sample))
    except (ValueError, KeyError, TypeError, AttributeError, StoreError) as error:
        raise DamagedHeaderError(f"{path} is damaged ({first_line(error)})") from None


def write(path: Path, header: Header) -> None:
    """Put a header in place, under the store's lock."""
    with full_disk_as_store_full(path.parent):
        remove_parts(path)
        write_private(path, header.pack())


def _checksum(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<II", version, len(body))))
