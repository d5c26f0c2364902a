"""A data entry of signals: an ``.npz`` of sessions or of arrays, a folder of class folders, or a CSV manifest."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Labels
from tuner.errors import TaskError, nearest
from tuner.reading import kind_of, open_regular
from tuner.targets import Targets
from tuner.task.data.entry import Entry, Origin, empty_partition, no_such_data, unreadable
from tuner.task.data.listing import read_folder, read_manifest
from tuner.task.data.npy import read_array
from tuner.task.data.npz import PartitionName, class_names, labels_key, open_npz, samples_key
from tuner.task.data.readable import FileCheck, kept
from tuner.task.data.signals import Recording, WindowSamples, check_alike, check_signal, window_begins
from tuner.task.spec import InputSpec

SUFFIXES = frozenset({".npy"})
_MARK = "#"
_SIGNAL = "/signal"


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRecordings:
    """Recordings as an entry lists them.

    Attributes:
        recordings: Recordings in order.
        names: Class names.
        targets: Place in `names` of each recording: int64 [n], or multi-hot float32 [n, len(names)]; or its targets.
    """

    recordings: list[Recording]
    names: tuple[str, ...]
    targets: Labels


def read_recordings(
    path: Path,
    partition: PartitionName,
    spec: InputSpec,
    kind: Targets,
    names: Sequence[str] | None = None,
    check: FileCheck | None = None,
) -> Entry:
    """Read the recordings of one entry, and list their windows.

    Args:
        path: Absolute path of a folder of class folders with ``.npy`` files, of a ``.csv`` manifest of such, or of an
            ``.npz``; ``file.npz#pattern`` takes the sessions of that name or below it, with ``*`` for any part.
        partition: Which partition to read, as an ``.npz`` of arrays may hold several.
        spec: Window and hop.
        kind: What a sample's label is.
        names: Class names for an ``.npz`` that has none of its own.
        check: Notes files that cannot be read or hold no signal, which are then left out; without it they are errors.

    Raises:
        TaskError: The entry is missing, empty, malformed, or recordings do not fit each other or the window.
    """
    file, _, pattern = (str(path), "", "") if kind_of(path) != "nothing" else str(path).partition(_MARK)
    source = Path(file)
    if kind_of(source) == "nothing":
        raise no_such_data(source, partition)
    suffix = source.suffix.lower()
    if suffix == ".npz":
        listed = _read_npz(source, pattern, partition, kind, names or ())
    elif pattern:
        raise TaskError(
            f"{path}: {_MARK}{pattern} chooses sessions of an .npz: leave it out for {suffix or 'a folder'}"
        )
    elif kind_of(source) == "folder" or suffix == ".csv":
        listed = _read_files(source, spec, kind, check)
    else:
        raise TaskError(
            f"{source}: signals must be in an .npz, a folder of class folders or a .csv manifest, got {suffix!r}"
        )
    recordings = listed.recordings
    if not recordings:
        raise empty_partition(path, partition, "recording")
    for recording in recordings:
        check_signal(recording.signal, spec, recording.name)
    check_alike(recordings, spec)
    counts = [len(window_begins(recording.signal.shape[1], spec)) for recording in recordings]
    origin = Origin(
        tuple(recording.name for recording in recordings),
        tuple(recording.session for recording in recordings),
        np.repeat(np.arange(len(recordings)), counts),
    )
    targets = np.repeat(listed.targets, counts, axis=0)
    return Entry(str(path), listed.names, targets, lambda rows: WindowSamples(recordings, rows, spec), origin)


def read_npy(path: Path) -> Array:
    """Read one array file, such as a recording [channels, time].

    Raises:
        TaskError: The file is missing, or no ``.npy``.
    """
    try:
        with open_regular(path) as file:
            return read_array(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, EOFError) as error:
        reason = str(error)
    raise TaskError(f"{path}: cannot be read as .npy ({reason}): write it with numpy.save")


def _read_files(source: Path, spec: InputSpec, kind: Targets, check: FileCheck | None) -> LabelledRecordings:
    try:
        if kind_of(source) == "folder":
            files, labels = read_folder(source, SUFFIXES, "recordings")
            sessions = [""] * len(files)
        else:
            files, labels, sessions = read_manifest(source, kind, sessions=True)
    except OSError as error:
        raise unreadable(error, source) from error
    recordings = [_recording(file, session, spec, check) for file, session in zip(files, sessions, strict=True)]
    keep = [recording is not None for recording in recordings]
    if check is not None and files and not any(keep):
        raise check.error(source)
    left = [recording for recording in recordings if recording is not None]
    return LabelledRecordings(left, *kind.read_texts(kept(labels, keep), source))


def _recording(file: Path, session: str, spec: InputSpec, check: FileCheck | None) -> Recording | None:
    """Read a recording's file; None, and noted, where it cannot be used."""
    try:
        signal = read_npy(file)
        check_signal(signal, spec, str(file))
    except TaskError as error:
        if check is None:
            raise
        check.note(file, error)
        return None
    return Recording(str(file), session, signal)


def _read_npz(
    path: Path, pattern: str, partition: PartitionName, kind: Targets, borrowed: Sequence[str]
) -> LabelledRecordings:
    with open_npz(path) as file:
        sessions = [key.removesuffix(_SIGNAL) for key in file if key.endswith(_SIGNAL)]
        if sessions:
            return _read_sessions(path, file, _matching(path, sessions, pattern), kind, borrowed)
        if pattern:
            raise TaskError(f"{path}: has no sessions (NAME/signal) to choose {_MARK}{pattern} from: leave it out")
        return _read_arrays(path, file, partition, kind, borrowed)


def _matching(path: Path, sessions: Sequence[str], pattern: str) -> list[str]:
    """Return the sessions that a pattern chooses; all without one."""
    if not pattern:
        return list(sessions)
    patterns = (pattern, f"{pattern}/*")
    matching = [session for session in sessions if any(fnmatchcase(session, each) for each in patterns)]
    if not matching:
        words = {
            part for session in sessions for part in (session, session.rpartition("/")[0], session.partition("/")[0])
        }
        raise TaskError(
            f"{path}: no session {pattern!r}{nearest(pattern, words)}; there are {', '.join(sessions[:3])} …"
        )
    return matching


def _read_sessions(
    path: Path, file: Mapping[str, Array], sessions: Sequence[str], kind: Targets, borrowed: Sequence[str]
) -> LabelledRecordings:
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
    return LabelledRecordings(
        recordings, *kind.read_array(str(path), np.concatenate(labels), class_names(file), borrowed)
    )


def _bounds(where: str, start: Array, labels: int, length: int) -> list[tuple[int, int]]:
    """Return where each recording of a session begins and ends."""
    if start.ndim != 1 or start.dtype.kind not in "iu" or len(start) != labels + 1:
        raise TaskError(f"{where}: {labels} labels need {labels + 1} starts, got {list(start.shape)}")
    bounds = start.astype(np.int64)
    if bounds[0] < 0 or bounds[-1] > length or (np.diff(bounds) <= 0).any():
        raise TaskError(f"{where}: starts must grow from 0 up to the signal's length {length}")
    return list(pairwise(bounds.tolist()))


def _read_arrays(
    path: Path, file: Mapping[str, Array], partition: PartitionName, kind: Targets, borrowed: Sequence[str]
) -> LabelledRecordings:
    """Read ``x_train`` [n, channels, time] and ``y_train``, and of each row its ``session_train`` if that is there."""
    x_key = samples_key(path, file, partition, labelled=True)
    x, y = file[x_key], file[labels_key(x_key)]
    where = f"{path}:{x_key}"
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{where}: there must be one label per recording, got {list(x.shape)} and {list(y.shape)}")
    sessions_key = "session" + x_key[1:]
    sessions = [str(name) for name in file[sessions_key]] if sessions_key in file else [""] * len(x)
    if len(sessions) != len(x):
        raise TaskError(f"{path}:{sessions_key}: {len(x)} recordings need as many sessions, got {len(sessions)}")
    if len(x) == 0:
        return LabelledRecordings([], (), y)
    recordings = [
        Recording(f"{where}[{number}]", session, signal)
        for number, (session, signal) in enumerate(zip(sessions, x, strict=True))
    ]
    return LabelledRecordings(recordings, *kind.read_array(where, y, class_names(file), borrowed))
