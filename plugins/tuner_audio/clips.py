"""Patches of the sounds that a task lists, decoded when they are asked for."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.errors import TaskError
from tuner.reading import open_regular
from tuner.task.data.entry import unreadable
from tuner.task.data.readable import FileCheck
from tuner.task.data.samples import ID_BYTES, Samples, content_id
from tuner.task.data.signals import window_begins
from tuner.task.spec import InputSpec
from tuner_audio.bands import OFFSET, RATE, STEP, ClipHeader, read_clip, read_header

_BLOCK_BYTES = 2**20  # of a file, hashed at a time
#: Log-mel bands that are kept, so that neighbouring patches do not decode their sound again.
_MOST_KEPT_BYTES = 64_000_000


class ClipSamples(Samples):
    """Patches of sounds, which are decoded when a patch is asked for; those used last are kept.

    Args:
        files: The sounds.
        headers: What their headers say.
        recordings: Name of the recording that each was cut from.
        labels: Labels of the patches, sound by sound, as in `Samples`.
        spec: Frames of a patch and the hop.
    """

    def __init__(
        self,
        files: Sequence[Path],
        headers: Sequence[ClipHeader],
        recordings: Sequence[str],
        labels: Labels,
        spec: InputSpec,
    ) -> None:
        self.labels = labels
        self._files, self._recordings, self._length = tuple(files), tuple(recordings), spec.window or 0
        self._patches = [
            (number, begin)
            for number, header in enumerate(headers)
            for begin in window_begins(header.frames(self._length), spec)
        ]
        self._kept = _KeptBands()
        self._ids: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._patches)

    def load(self, index: int) -> Floats:
        """Return one patch: float32 [1, 64, frames]."""
        number, begin = self._patches[index]
        patch = self._bands_of(number)[:, begin : begin + self._length]
        missing = self._length - patch.shape[1]  # where the header promised more than there is
        return np.pad(patch, ((0, 0), (0, missing)), constant_values=np.log(OFFSET))[None]

    def sample_id(self, index: int) -> str:
        """Hash the file's bytes, once, and where the patch begins."""
        return content_id(f"{self.stamp(index)} {self._patches[index][1]} {self._length}".encode())

    def name(self, index: int) -> str:
        """Return the file's path and the second in which the patch begins."""
        number, begin = self._patches[index]
        return f"{self._files[number]}@{begin * STEP / RATE:g}s"

    def origin(self, index: int) -> str:
        """Return the name of the recording that the sound was cut from."""
        return self._recordings[self._patches[index][0]]

    def whole(self, index: int) -> str:
        """Return the file's path."""
        return str(self._files[self._patches[index][0]])

    def stamp(self, index: int) -> str:
        """Return the hash of the file's bytes: a WAV that was edited often has its old size."""
        number = self._patches[index][0]
        if number not in self._ids:
            self._ids[number] = _file_id(self._files[number])
        return self._ids[number]

    def _bands_of(self, number: int) -> Floats:
        bands = self._kept.get(number)
        if bands is None:
            bands = read_clip(self._files[number], self._length).bands
            self._kept.add(number, bands)
        return bands


class _KeptBands:
    """Log-mel bands of the sounds that were used last; for several threads, and empty again in another process."""

    def __init__(self) -> None:
        self._bands: OrderedDict[int, Floats] = OrderedDict()
        self._bytes, self._lock = 0, Lock()

    def get(self, number: int) -> Floats | None:
        with self._lock:
            if number in self._bands:
                self._bands.move_to_end(number)
            return self._bands.get(number)

    def add(self, number: int, bands: Floats) -> None:
        with self._lock:
            if number in self._bands:
                return
            self._bands[number] = bands
            self._bytes += bands.nbytes
            while self._bytes > _MOST_KEPT_BYTES and len(self._bands) > 1:
                self._bytes -= self._bands.popitem(last=False)[1].nbytes

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _KeptBands, ()


def _file_id(path: Path) -> str:
    """Hash a file of any size as `content_id` hashes its bytes."""
    digest = hashlib.blake2b(digest_size=ID_BYTES)
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
        return digest.hexdigest()
    except OSError as error:
        raise unreadable(error, path) from error


def header_of(file: Path, check: FileCheck | None) -> ClipHeader | None:
    """Return what a sound's header says; None, and noted, where it cannot be read.

    Raises:
        TaskError: It cannot be read, and `check` is None.
    """
    try:
        return read_header(file)
    except TaskError as error:
        if check is None:
            raise
        check.note(file, error)
        return None
