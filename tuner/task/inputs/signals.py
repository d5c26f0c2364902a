"""Signals: recordings in an ``.npz`` of sessions or of arrays, in class folders or in a manifest, cut into windows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array, Labels
from tuner.augment.operations import check_signal_operations
from tuner.errors import TaskError, nearest
from tuner.reading import kind_of
from tuner.task.data.entry import Entry, EntrySource, Origin, empty_partition, no_such_data
from tuner.task.data.listing import read_listing
from tuner.task.data.npy import read_npy
from tuner.task.data.npz import class_names, open_npz, read_labelled, samples_key, sessions_key, texts
from tuner.task.data.readable import kept
from tuner.task.data.samples import Samples
from tuner.task.data.signals import (
    Recording,
    WindowSamples,
    channel_statistics,
    check_alike,
    check_signal,
    cut_windows,
    window_begins,
)
from tuner.task.data.table import SUFFIX, is_manifest, label_column, read_table, split_column, stretches, with_columns
from tuner.task.inputs.base import InputKind, Network, flat_network
from tuner.task.spec import InputSpec

SUFFIXES = frozenset({".npy", SUFFIX})
_MARK = "#"
_SIGNAL = "/signal"
#: Time steps of the windows that `tuner init` proposes.
LEAST_WINDOW, MOST_WINDOW = 43, 100

#: Recordings as an entry lists them, names of the classes or outputs, and the labels of each in their terms.
Labelled = tuple[list[Recording], tuple[str, ...], Labels]


class Signals(InputKind):
    """Recordings [channels, time], cut into windows."""

    name = "signals"
    suffixes = SUFFIXES
    noun = "windows"
    settings = frozenset({"window", "hop"})
    windowed = True
    is_standardised = True

    def entry(self, source: EntrySource) -> Entry:
        """Return the windows of recordings: of ``.npy`` files in class folders or in a manifest, or of an ``.npz``.

        ``file.npz#pattern`` takes the sessions of that name or below it, with ``*`` for any part.
        """
        recordings, names, targets = _read(source)
        if not recordings:
            raise empty_partition(source.path, source.partition, "recording")
        for recording in recordings:
            check_signal(recording.signal, source.spec, recording.name)
        check_alike(recordings, source.spec)
        counts = [len(window_begins(recording.signal.shape[1], source.spec)) for recording in recordings]
        origin = Origin(
            tuple(recording.name for recording in recordings),
            tuple(recording.session for recording in recordings),
            np.repeat(np.arange(len(recordings)), counts),
        )
        targets = np.repeat(targets, counts, axis=0)
        build = partial(WindowSamples, recordings, spec=source.spec)
        return Entry(str(source.path), names, targets, build, origin)

    def read(self, path: Path, spec: InputSpec) -> Array:
        return _read_signal(path, spec)[0]

    def pieces(self, content: Array, spec: InputSpec, name: str) -> tuple[range, Array]:
        windows = cut_windows(content, spec, name)
        return window_begins(content.shape[1], spec), windows

    def standardised(self, spec: InputSpec, partitions: Mapping[str, Samples]) -> InputSpec:
        shapes = {where: samples.load(0).shape for where, samples in partitions.items()}
        first, shape = next(iter(shapes.items()))
        other = next((where for where in shapes if shapes[where] != shape), None)
        if other is not None:
            raise TaskError(
                f"{other} gives windows of {list(shapes[other])}, {first} of {list(shape)}: all recordings of a task "
                "must have the same channels; if their lengths differ, give input.window"
            )
        spec = with_columns(spec, partitions)
        if spec.mean or spec.std:
            return spec
        mean, std = channel_statistics(partitions[first], first)
        return replace(spec, mean=mean, std=std)

    def check_operations(self, ops: frozenset[str]) -> None:
        check_signal_operations(ops)

    def proposed(self, source: EntrySource) -> dict[str, Any]:
        """Return no window where all recordings are short and of one length; else windows that overlap by half."""
        lengths = sorted(recording.signal.shape[1] for recording in _read(source)[0])
        if not lengths or lengths[0] == lengths[-1] <= MOST_WINDOW:
            return {}
        window = min(MOST_WINDOW, max(LEAST_WINDOW, lengths[len(lengths) // 20]))
        return {"window": window, "hop": max(1, window // 2)}

    def network(self, shape: Sequence[int], outputs: int) -> Network:
        channels, time = shape
        if time < LEAST_WINDOW:
            return flat_network(shape, outputs)
        arguments = {"channels": channels, "time": time, "outputs": outputs}
        return Network("tuner.models.lenet:lenet_1d", arguments, ops=("noise", "shift"))


def _read(source: EntrySource) -> Labelled:
    path = source.path
    file, pattern = split_column(path)
    if kind_of(file) == "nothing":
        raise no_such_data(file, source.partition)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return _read_npz(file, pattern, source)
    if suffix == SUFFIX and not is_manifest(file):
        return _read_series(file, pattern, source)
    if pattern:
        raise TaskError(
            f"{path}: {_MARK}{pattern} chooses sessions of an .npz: leave it out for {suffix or 'a folder'}"
        )
    files, labels, sessions, others = read_listing(source, file, SUFFIXES, "recordings")
    if source.check is not None:
        source.check.count(file, files, others)
    recordings = [_recording(each, session, source) for each, session in zip(files, sessions, strict=True)]
    keep = [recording is not None for recording in recordings]
    if source.check is not None and files and not any(keep):
        raise source.check.error(file)
    left = [recording for recording in recordings if recording is not None]
    return left, *source.targets.read_texts(kept(labels, keep), file)


def _recording(file: Path, session: str, source: EntrySource) -> Recording | None:
    """Read a recording's file; None, and noted, where it cannot be used."""
    try:
        signal, columns = _read_signal(file, source.spec)
        check_signal(signal, source.spec, str(file))
    except TaskError as error:
        if source.check is None:
            raise
        source.check.note(file, error)
        return None
    return Recording(str(file), session, signal, columns)


def _read_signal(file: Path, spec: InputSpec) -> tuple[Array, tuple[str, ...]]:
    """Read a recording [channels, time], of a table, whose rows are steps in time, or an array; and its columns."""
    if file.suffix.lower() != SUFFIX:
        return read_npy(file), ()
    table = read_table(file, columns=spec.columns)
    return table.values.T, table.columns


def _read_series(file: Path, column: str, source: EntrySource) -> Labelled:
    """Read a long table, whose rows are steps in time: each stretch of one label is a recording."""
    table = read_table(file, column or label_column(file, needed=True))
    found = stretches(table)
    parts = [(begin, end) for begin, end in found if source.spec.window is None or end - begin >= source.spec.window]
    if source.check is not None and (left := len(found) - len(parts)):
        source.check.findings.append(f"note: {file.name}: {left:,} stretches of a label are shorter than a window")
    recordings = [
        Recording(f"{file}[{begin}:{end}]", table.sessions[begin], table.values[begin:end].T, table.columns)
        for begin, end in parts
    ]
    labels = table.labels_of(file, source.targets, [begin for begin, _ in parts])
    return recordings, *source.targets.read_texts(labels, file)


def _read_npz(path: Path, pattern: str, source: EntrySource) -> Labelled:
    with open_npz(path) as file:
        sessions = [key.removesuffix(_SIGNAL) for key in file if key.endswith(_SIGNAL)]
        if sessions:
            return _read_sessions(path, file, _matching(path, sessions, pattern), source)
        if pattern:
            raise TaskError(f"{path}: has no sessions (NAME/signal) to choose {_MARK}{pattern} from: leave it out")
        return _read_arrays(path, file, source)


def _matching(path: Path, sessions: Sequence[str], pattern: str) -> list[str]:
    """Return the sessions that a pattern chooses; all without one."""
    if not pattern:
        return list(sessions)
    matching = [each for each in sessions if fnmatchcase(each, pattern) or fnmatchcase(each, f"{pattern}/*")]
    if not matching:
        words = {part for each in sessions for part in (each, each.rpartition("/")[0], each.partition("/")[0])}
        raise TaskError(
            f"{path}: no session {pattern!r}{nearest(pattern, words)}; there are {', '.join(sessions[:3])} …"
        )
    return matching


def _read_sessions(path: Path, file: Mapping[str, Array], sessions: Sequence[str], source: EntrySource) -> Labelled:
    """Read ``NAME/signal`` [time, channels], cut at ``NAME/start`` [r + 1] into recordings labelled ``NAME/label``."""
    recordings: list[Recording] = []
    labels: list[Array] = []
    for session in sessions:
        where = f"{path}{_MARK}{session}"
        missing = next((part for part in ("label", "start") if f"{session}/{part}" not in file), None)
        if missing is not None:
            raise TaskError(
                f"{where}: {missing} is missing: a session must have signal [time, channels], label [r], start [r+1]"
            )
        signal, label, start = (file[f"{session}/{part}"] for part in ("signal", "label", "start"))
        recordings += [
            Recording(f"{where}[{number}]", session, signal[begin:end].T)
            for number, (begin, end) in enumerate(_bounds(where, start, len(label), len(signal)))
        ]
        labels.append(label)
    read = source.targets.read_array(str(path), np.concatenate(labels), class_names(file), source.names)
    return recordings, *read


def _bounds(where: str, start: Array, labels: int, length: int) -> list[tuple[int, int]]:
    """Return where each recording of a session begins and ends."""
    if start.ndim != 1 or start.dtype.kind not in "iu" or len(start) != labels + 1:
        raise TaskError(f"{where}: {labels} labels need {labels + 1} starts, got {list(start.shape)}")
    bounds = start.astype(np.int64)
    if bounds[0] < 0 or bounds[-1] > length or (np.diff(bounds) <= 0).any():
        raise TaskError(f"{where}: starts must grow from 0 up to the signal's length {length}")
    return list(pairwise(bounds.tolist()))


def _read_arrays(path: Path, file: Mapping[str, Array], source: EntrySource) -> Labelled:
    """Read ``x_train`` [n, channels, time] and ``y_train``, and of each row its ``session_train`` if that is there."""
    x_key = samples_key(path, file, source.partition, labelled=True)
    x, y = read_labelled(path, file, x_key, "recording")
    where = f"{path}:{x_key}"
    key = sessions_key(x_key)
    sessions = texts(file, key) if key in file else [""] * len(x)
    if len(sessions) != len(x):
        raise TaskError(f"{path}:{key}: {len(x)} recordings need as many sessions, got {len(sessions)}")
    if len(x) == 0:
        return [], (), y
    recordings = [
        Recording(f"{where}[{number}]", session, signal)
        for number, (session, signal) in enumerate(zip(sessions, x, strict=True))
    ]
    return recordings, *source.targets.read_array(where, y, class_names(file), source.names)
