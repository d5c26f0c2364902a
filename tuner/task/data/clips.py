"""A data entry of sounds: a folder of class folders, or a CSV manifest; each sound gives overlapping patches."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.errors import TaskError
from tuner.reading import kind_of, open_regular
from tuner.targets import Targets
from tuner.task.data.audio import OFFSET, RATE, STEP, SUFFIXES, ClipHeader, read_clip, read_header
from tuner.task.data.entry import Entry, Origin, empty_partition, no_such_data, unreadable
from tuner.task.data.listing import read_folder, read_manifest
from tuner.task.data.npz import PartitionName
from tuner.task.data.readable import FileCheck, kept
from tuner.task.data.samples import ID_BYTES, Samples, content_id
from tuner.task.data.signals import window_begins
from tuner.task.spec import InputSpec

_MARK = "#"
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


def read_clips(
    path: Path,
    partition: PartitionName,
    spec: InputSpec,
    kind: Targets,
    recording: str | None = None,
    check: FileCheck | None = None,
) -> Entry:
    """Read which sounds an entry lists, and list their patches.

    Args:
        path: Absolute path of a folder of class folders, or of a ``.csv`` manifest; ``folder#PATTERN`` takes the files
            of such a name only, with ``*`` for any letters and ``[1-3]`` for one of some.
        partition: Which partition it is, for messages.
        spec: Frames of a patch and the hop.
        kind: What a sample's label is.
        recording: Regular expression whose match in a file's name is the name of the recording that the sound was cut
            from; a manifest's session takes its place.
        check: Notes sounds that cannot be read, which are then left out; without it none is decoded.

    Raises:
        TaskError: The entry is missing, empty or malformed.
    """
    name, _, pattern = (str(path), "", "") if kind_of(path) != "nothing" else str(path).rpartition(_MARK)
    name = name or str(path)  # there is no mark
    source = Path(name)
    found_as = kind_of(source)
    if found_as == "nothing":
        raise no_such_data(source, partition)
    try:
        if found_as == "folder":
            files, labels = read_folder(source, SUFFIXES, "sounds")
            sessions = [""] * len(files)
        elif source.suffix.lower() == ".csv":
            files, labels, sessions = read_manifest(source, kind, sessions=True)
        else:
            raise TaskError(
                f"{source}: sounds must be in a folder of class folders or a .csv manifest, got {source.suffix!r}"
            )
    except OSError as error:
        raise unreadable(error, source) from error
    chosen = [not pattern or fnmatchcase(file.name, pattern) for file in files]
    files, labels, sessions = kept(files, chosen), kept(labels, chosen), kept(sessions, chosen)
    if not files:
        raise empty_partition(path, partition, "sound")
    decodable = check.readable(files, read_clip) if check is not None else [True] * len(files)
    found = [_header(file, check) if whole else None for file, whole in zip(files, decodable, strict=True)]
    keep = [header is not None for header in found]
    if check is not None and not any(keep):
        raise check.error(path)
    files, labels, sessions = kept(files, keep), kept(labels, keep), kept(sessions, keep)
    headers = [header for header in found if header is not None]
    recordings = [session or _recording(file, recording) for file, session in zip(files, sessions, strict=True)]
    counts = [len(window_begins(header.frames(spec.window or 0), spec)) for header in headers]
    names, places = np.unique(recordings, return_inverse=True)
    origin = Origin(tuple(names.tolist()), ("",) * len(names), np.repeat(places.astype(np.int64), counts))
    classes, targets = kind.read_texts(labels, source)
    notes = tuple(
        f"{file}: {note}"
        for file, header in zip(files, headers, strict=True)
        if (note := header.note(spec.window or 0))
    )
    return Entry(
        str(path),
        classes,
        np.repeat(targets, counts, axis=0),
        lambda rows: ClipSamples(files, headers, recordings, rows, spec),
        origin,
        notes,
    )


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


def _header(file: Path, check: FileCheck | None) -> ClipHeader | None:
    try:
        return read_header(file)
    except TaskError as error:
        if check is None:
            raise
        check.note(file, error)
        return None


def _recording(file: Path, pattern: str | None) -> str:
    """Return the name of the recording that a sound was cut from: its own path where nothing says so.

    Raises:
        TaskError: The pattern is no regular expression, or does not match.
    """
    if pattern is None:
        return str(file)
    try:
        match = re.search(pattern, file.name)
    except re.error as error:
        raise TaskError(f"input.recording must be a regular expression, got {pattern!r} ({error})") from None
    if match is not None and not match[0]:
        raise TaskError(f"{file}: input.recording = {pattern!r} matches nothing of this file's name: correct it")
    if match is None:
        raise TaskError(
            f"{file}: input.recording = {pattern!r} does not match this file's name: correct it, or rename the file"
        )
    return match[0]
