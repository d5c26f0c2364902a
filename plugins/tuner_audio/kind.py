"""The kind ``audio``: sounds in class folders or in a manifest, of which each gives overlapping patches."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.arrays import Array, Floats
from tuner.reading import kind_of
from tuner.task.data.entry import Entry, EntrySource, Origin, empty_partition, no_such_data
from tuner.task.data.listing import read_listing
from tuner.task.data.sessions import recording_of
from tuner.task.data.signals import cut_windows, window_begins
from tuner.task.inputs.base import InputKind, Network
from tuner.task.spec import InputDefaults, InputSpec
from tuner_audio.bands import PATCH, RATE, STEP, SUFFIXES, log_mel, read_clip, read_header, seconds_of
from tuner_audio.clips import ClipSamples, header_of
from tuner_audio.spectrograms import augment_spectrograms, check_spectral_operations

_MARK = "#"


class Sounds(InputKind):
    """Sounds, cut into patches of log-mel bands [1, 64, window]."""

    name = "audio"
    suffixes = SUFFIXES
    noun = "patches"
    settings = frozenset({"window", "hop", "recording"})
    windowed = True
    whole = "clip"
    timed = True

    def entry(self, source: EntrySource) -> Entry:
        """Return the patches of sounds in class folders, or of a ``.csv`` manifest.

        ``folder#PATTERN`` takes the files of such a name only, with ``*`` for any letters and ``[1-3]`` for one of
        some. What `source.recording`, a regular expression, matches in a file's name is the name of the recording that
        the sound was cut from; a manifest's session takes its place.
        """
        path, spec, check = source.path, source.spec, source.check
        listed = _listed(source)
        decodable = check.readable([clip.file for clip in listed], read_clip) if check else [True] * len(listed)
        headers = [
            header_of(clip.file, check) if whole else None for clip, whole in zip(listed, decodable, strict=True)
        ]
        clips = [(clip, header) for clip, header in zip(listed, headers, strict=True) if header is not None]
        if check is not None and not clips:
            raise check.error(path)
        files, found = [clip.file for clip, _ in clips], [header for _, header in clips]
        recordings = [clip.session or recording_of(clip.file, source.recording) for clip, _ in clips]
        counts = [len(window_begins(header.frames(spec.window or 0), spec)) for header in found]
        names, places = np.unique(recordings, return_inverse=True)
        origin = Origin(tuple(names.tolist()), ("",) * len(names), np.repeat(places.astype(np.int64), counts))
        classes, targets = source.targets.read_texts([clip.labels for clip, _ in clips], path)
        notes = tuple(f"{clip.file}: {note}" for clip, header in clips if (note := header.note(spec.window or 0)))
        return Entry(
            str(path),
            classes,
            np.repeat(targets, counts, axis=0),
            lambda rows: ClipSamples(files, found, recordings, rows, spec),
            origin,
            notes,
        )

    def read(self, path: Path, spec: InputSpec) -> Array:
        """Return the log-mel bands of a sound, float32 [64, frames]."""
        return read_clip(path, spec.window or PATCH).bands

    def note(self, path: Path, spec: InputSpec) -> str:
        """Return whether the sound is mixed down or padded."""
        return read_header(path).note(spec.window or PATCH)

    def pieces(self, content: Array, spec: InputSpec, name: str) -> tuple[range, Array]:
        """Return the patches of a sound: of its bands, or as it is heard, mono at 16 kHz, [samples]."""
        bands = log_mel(content, spec.window or PATCH) if content.ndim == 1 else content
        patches: Array = cut_windows(bands, spec, name)[:, np.newaxis]
        return window_begins(bands.shape[1], spec), patches

    def graph(self, spec: InputSpec) -> bytes:
        """Return the model from a sound, mono at 16 kHz, float32 [samples], to its patches."""
        from tuner_audio.graph import log_mel_graph  # a device that predicts does without

        return log_mel_graph(spec.window or PATCH, spec.hop or spec.window or PATCH)

    def seconds(self, begins: range, spec: InputSpec) -> list[float]:
        """Return the second in the middle of each patch."""
        half = seconds_of(spec.window or PATCH) / 2
        return [begin * STEP / RATE + half for begin in begins]

    def completed(self, given: Mapping[str, Any], published: Callable[[], InputDefaults | None]) -> dict[str, Any]:  # noqa: ARG002 - for others
        """Return the fields with patches as YAMNet's, which overlap by half."""
        window = PATCH if given["window"] is None else given["window"]
        hop = max(1, window // 2) if given["hop"] is None else given["hop"]
        return {**given, "window": window, "hop": hop}

    def network(self, shape: Sequence[int], outputs: int) -> Network:  # noqa: ARG002 - its last pool takes any window
        """Return YAMNet-256, whose published weights are used where they are on this device."""
        ops = ("time-shift", "time-mask", "frequency-mask")
        return Network("tuner_audio.yamnet:yamnet_256", {"outputs": outputs}, "yamnet_256[_.]*", ops)

    def check_operations(self, ops: frozenset[str]) -> None:
        """Require shifts in time and masks."""
        check_spectral_operations(ops)

    def augment(self, maps: Floats, generator: np.random.Generator, ops: frozenset[str], strength: float) -> Floats:
        """Return patches, or maps of them, changed as `augment_spectrograms` does."""
        return augment_spectrograms(maps, generator, ops, strength)


class _Listed(NamedTuple):
    """A sound as an entry lists it."""

    file: Path
    labels: tuple[str, ...]
    session: str


def _listed(source: EntrySource) -> list[_Listed]:
    """Return the sounds of an entry, of those names that it chooses; at least one."""
    path = source.path
    name, _, pattern = (str(path), "", "") if kind_of(path) != "nothing" else str(path).rpartition(_MARK)
    place = Path(name or path)  # there is no mark
    if kind_of(place) == "nothing":
        raise no_such_data(place, source.partition)
    files, labels, sessions, others = read_listing(source, place, SUFFIXES, "sounds", npz=False)
    if source.check is not None:
        source.check.count(place, files, others)
    listed = map(_Listed, files, labels, sessions)
    chosen = [clip for clip in listed if not pattern or fnmatchcase(clip.file.name, pattern)]
    if not chosen:
        raise empty_partition(path, source.partition, "sound")
    return chosen


AUDIO = Sounds()
