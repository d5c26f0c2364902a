"""The user's new samples, kept on this device only: a bounded ring of files, private to the user.

One file a sample, put in place whole: a kill at any byte loses at most the sample being written. The ring is never in
a bundle's folder, which people copy to others.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.commands.bundles.rings import LEARNED, SUFFIX
from tuner.errors import StoreError
from tuner.files import mark_changed, private_folder, write_private
from tuner.task.data.samples import content_id

HEAD = struct.Struct("<4sII")  # magic, crc32 of the rest, bytes of the JSON that follows
MAGIC = b"TRG1"
#: Models that `LEARNED` has the samples of: in use, to fall back to, and one that was not put in place after all.
MOST_MODELS = 4
Sample = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class RingSample:
    """A sample of the ring.

    Attributes:
        identity: 32 hex digits that depend on the sample's content alone.
        label: Label; None where it has none.
        sample: Decoded sample, not normalised.
        recording: Mark of the recording or sound that it was cut from; empty where it is whole.
    """

    identity: str
    label: str | None
    sample: Sample
    recording: str = ""


class Ring:
    """The newest samples, up to a number and a size; the oldest are removed first.

    Args:
        folder: Folder of the samples, made with mode 0700 for the first one.
        most_samples: Largest number of samples.
        most_bytes: Largest size of all samples.
    """

    def __init__(self, folder: Path, most_samples: int = 2000, most_bytes: int = 256 * 10**6) -> None:
        self.folder, self._most_samples, self._most_bytes = folder, most_samples, most_bytes
        self._sizes: dict[str, int] = {}
        self._seen_ns = -1

    def __len__(self) -> int:
        return len(self._listed())

    def since(self, number: int | None) -> tuple[int, int]:
        """Return how many samples came after one of a number, and the newest one's; numbers begin at 1.

        After None, which stands for the newest, none came.
        """
        numbers = [int(name.partition("-")[0]) for name in self._listed()]
        return sum(own > number for own in numbers if number is not None), max(numbers, default=0)

    @property
    def size_bytes(self) -> int:
        """Size of all samples on disk."""
        return sum(self._listed().values())

    def add(self, sample: Sample, label: str | None = None, recording: str = "") -> bool:
        """Add a sample, with what `RingSample` says of it; return False where the ring has it already.

        A later label replaces the one it had.

        Raises:
            StoreError: The disk is full or cannot be written; every other sample stays.
        """
        sample = np.ascontiguousarray(sample)
        identity = content_id(sample.tobytes(), repr((sample.shape, sample.dtype.str)).encode())
        listed = self._listed()
        before = next((name for name in listed if _identity(name) == identity), None)
        if before is not None:
            stored = self._read(before)
            if stored is not None and (label is None or stored.label == label):
                return False
        number = max((int(name.partition("-")[0]) for name in listed), default=0) + 1
        name = before or f"{number:012d}-{identity}{SUFFIX}"
        try:
            self._write(name, _packed(sample, label, recording))
        except OSError as error:
            raise StoreError(
                f"the sample was not kept, because {self.folder} cannot be written ({error.strerror}): "
                "check its permissions, and free space"
            ) from None
        self._bound()
        return before is None

    def load(self) -> list[RingSample]:
        """Return every sample, oldest first; a damaged one is left out and removed."""
        samples = {name: self._read(name) for name in sorted(self._listed())}
        for name, sample in samples.items():
            if sample is None:
                self._remove(self.folder / name)
        return [sample for sample in samples.values() if sample is not None]

    def learned(self, model: str) -> frozenset[str]:
        """Return identities of the samples that a model, a `Bundle.identity`, was trained on, as far as known."""
        return frozenset(self._models().get(model, ()))

    def note_learned(self, model: str, identities: Iterable[str]) -> None:
        """Note what a model was trained on, so that these samples never judge it."""
        models = {**self._models(), model: sorted(identities)}
        kept = dict(list(models.items())[-MOST_MODELS:])
        write_private(self.folder / LEARNED, json.dumps(kept))

    def _models(self) -> dict[str, list[str]]:
        try:
            models = json.loads((self.folder / LEARNED).read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return models if isinstance(models, dict) else {}

    def _write(self, name: str, content: bytes) -> None:
        if not self.folder.is_dir():
            private_folder(self.folder.parent, StoreError)  # making it as a parent would leave its mode to the umask
            self.folder.mkdir(mode=0o700, exist_ok=True)
        write_private(self.folder / name, content, durable=False)  # `_read` notices what a power cut has torn
        mark_changed(self.folder)

    def _read(self, name: str) -> RingSample | None:
        try:
            content = (self.folder / name).read_bytes()
            magic, checksum, length = HEAD.unpack_from(content)
            if magic != MAGIC or zlib.crc32(memoryview(content)[HEAD.size :]) != checksum:
                return None
            about: dict[str, Any] = json.loads(content[HEAD.size : HEAD.size + length])
        except (FileNotFoundError, struct.error):
            return None
        sample = np.frombuffer(content, about["dtype"], offset=HEAD.size + length).reshape(about["shape"])
        return RingSample(_identity(name), about["label"], sample, about.get("recording", ""))  # rings of old lack it

    def _bound(self) -> None:
        listed = self._listed()
        total, count = sum(listed.values()), len(listed)
        for name in sorted(listed)[:-1]:  # the newest stays, however large
            if count <= self._most_samples and total <= self._most_bytes:
                break
            self._remove(self.folder / name)
            total, count = total - listed[name], count - 1

    def _remove(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            path.unlink()
            mark_changed(self.folder)

    def _listed(self) -> dict[str, int]:
        """Return the name and size of every sample; the folder is read again only when it has changed."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            if changed_ns != self._seen_ns:
                with os.scandir(self.folder) as entries:
                    names = {entry.name for entry in entries if entry.name.endswith(SUFFIX)}
                self._sizes = {
                    name: self._sizes.get(name) or (self.folder / name).stat().st_size for name in sorted(names)
                }
                self._seen_ns = changed_ns
        except FileNotFoundError:
            self._sizes, self._seen_ns = {}, -1
        return self._sizes


def _packed(sample: Sample, label: str | None, recording: str) -> bytes:
    about = {"dtype": sample.dtype.str, "shape": sample.shape, "label": label}
    head = json.dumps(about | ({"recording": recording} if recording else {})).encode()
    rest = head + sample.tobytes()
    return HEAD.pack(MAGIC, zlib.crc32(rest), len(head)) + rest


def _identity(name: str) -> str:
    return name.partition("-")[2].removesuffix(SUFFIX)
