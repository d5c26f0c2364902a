"""A data entry of signals: an ``.npz`` of sessions or of arrays, a folder of class folders, or a CSV manifest."""

import zipfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TaskError, nearest
from tuner.task.entry import Entry, Loss, Origin, Role, npz_keys, npz_targets, read_folder, read_manifest, targets_of
from tuner.task.signals import Recording, WindowSamples, check_alike, check_signal, window_begins
from tuner.task.spec import InputSpec

SUFFIXES = frozenset({".npy"})
_MARK = "#"
_SIGNAL = "/signal"
Labelled = tuple[list[Recording], tuple[str, ...], NDArray[Any]]


def read_recordings(path: Path, role: Role, spec: InputSpec, loss: Loss, names: Sequence[str] | None = None) -> Entry:
    """Read the recordings of one entry, and say which windows they give.

    Args:
        path: Absolute path of a folder of class folders with ``.npy`` files, of a ``.csv`` manifest of such, or of an
            ``.npz``; ``file.npz#pattern`` takes the sessions of that name or below it, with ``*`` for any part.
        role: Which split is wanted, as an ``.npz`` of arrays may hold several.
        spec: Window and hop.
        loss: Whether a recording may have several labels.
        names: Class names for an ``.npz`` that has none of its own.

    Raises:
        TaskError: It is missing, empty, malformed, or recordings do not fit each other or the window.
    """
    file, _, pattern = (str(path), "", "") if path.exists() else str(path).partition(_MARK)
    source = Path(file)
    if not source.exists():
        raise TaskError(f"{source}: no such file or folder, wanted as {role} data: check the path in the task file")
    suffix = source.suffix.lower()
    if suffix == ".npz":
        recordings, known, targets = _read_npz(source, pattern, role, loss, names or ())
    elif pattern:
        raise TaskError(
            f"{path}: {_MARK}{pattern} chooses sessions of an .npz: leave it out for {suffix or 'a folder'}"
        )
    elif source.is_dir() or suffix == ".csv":
        recordings, known, targets = _read_files(source, loss)
    else:
        raise TaskError(f"{source}: signals are read from an .npz, a folder of class folders or a .csv, not {suffix!r}")
    if not recordings:
        raise TaskError(f"{path}: the {role} split is empty: it wants at least one recording")
    for recording in recordings:
        check_signal(recording.signal, spec, recording.name)
    check_alike(recordings, spec)
    counts = [len(window_begins(recording.signal.shape[1], spec)) for recording in recordings]
    origin = Origin(
        tuple(recording.name for recording in recordings),
        tuple(recording.session for recording in recordings),
        np.repeat(np.arange(len(recordings)), counts),
    )
    labels = np.repeat(targets, counts, axis=0)
    return Entry(str(path), known, labels, lambda rows: WindowSamples(recordings, rows, spec), origin)


def _read_files(source: Path, loss: Loss) -> Labelled:
    try:
        if source.is_dir():
            files, labels = read_folder(source, SUFFIXES, "recordings")
            sessions = [""] * len(files)
        else:
            files, labels, sessions = read_manifest(source, loss, sessions=True)
    except OSError as error:
        raise TaskError(f"{error.filename or source}: cannot be read ({error.strerror}): check permissions") from error
    recordings = [Recording(str(file), session, read_npy(file)) for file, session in zip(files, sessions, strict=True)]
    known = tuple(sorted({label for several in labels for label in several}))
    return recordings, known, targets_of(labels, known, loss)


def read_npy(path: Path) -> NDArray[Any]:
    """Read one recording file: numbers [channels, time].

    Raises:
        TaskError: The file is missing, or no ``.npy``.
    """
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TaskError(f"{path}: cannot be read as .npy ({error}): write it with numpy.save") from error
    if not isinstance(array, np.ndarray):
        raise TaskError(f"{path}: holds several arrays: write one recording [channels, time] with numpy.save")
    return array


def _read_npz(path: Path, pattern: str, role: Role, loss: Loss, names: Sequence[str]) -> Labelled:
    try:
        with np.load(path, allow_pickle=False) as file:
            sessions = [key.removesuffix(_SIGNAL) for key in file.files if key.endswith(_SIGNAL)]
            own = [str(name) for name in file["classes"]] if "classes" in file.files else None
            if sessions:
                return _sessions(path, file, _chosen(path, sessions, pattern), loss, own, names)
            if pattern:
                raise TaskError(f"{path}: has no sessions (NAME/signal) to choose {_MARK}{pattern} from: leave it out")
            return _arrays(path, file, role, loss, own, names)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TaskError(
            f"{path}: cannot be read as .npz ({error}): write it with numpy.savez, without objects"
        ) from error


def _chosen(path: Path, sessions: Sequence[str], pattern: str) -> list[str]:
    found = [one for one in sessions if not pattern or any(fnmatchcase(one, p) for p in (pattern, f"{pattern}/*"))]
    if not found:
        known = {part for one in sessions for part in (one, one.rpartition("/")[0], one.partition("/")[0])}
        raise TaskError(
            f"{path}: no session {pattern!r}{nearest(pattern, known)}; there are {', '.join(sessions[:3])} …"
        )
    return found


def _sessions(
    path: Path,
    file: Mapping[str, NDArray[Any]],
    sessions: Sequence[str],
    loss: Loss,
    own: Sequence[str] | None,
    names: Sequence[str],
) -> Labelled:
    """Read ``NAME/signal`` [time, channels], cut at ``NAME/start`` [r + 1] into recordings labelled ``NAME/label``."""
    recordings: list[Recording] = []
    labels: list[NDArray[Any]] = []
    for session in sessions:
        where = f"{path}{_MARK}{session}"
        lacking = next((part for part in ("label", "start") if f"{session}/{part}" not in file), None)
        if lacking is not None:
            raise TaskError(
                f"{where}: lacks {lacking}: a session wants signal [time, channels], label [r], start [r+1]"
            )
        signal, label, start = (file[f"{session}/{part}"] for part in ("signal", "label", "start"))
        if start.ndim != 1 or start.dtype.kind not in "iu" or len(start) != len(label) + 1:
            raise TaskError(f"{where}: {len(label)} labels want {len(label) + 1} starts, got {list(start.shape)}")
        bounds = start.astype(np.int64)
        if bounds[0] < 0 or bounds[-1] > len(signal) or (np.diff(bounds) <= 0).any():
            raise TaskError(f"{where}: starts want to grow from 0 up to the signal's length {len(signal)}")
        recordings += [
            Recording(f"{where}[{number}]", session, signal[begin:end].T)
            for number, (begin, end) in enumerate(pairwise(bounds))
        ]
        labels.append(label)
    known, targets = npz_targets(str(path), np.concatenate(labels), loss, own, names)
    return recordings, known, targets


def _arrays(
    path: Path,
    file: Mapping[str, NDArray[Any]],
    role: Role,
    loss: Loss,
    own: Sequence[str] | None,
    names: Sequence[str],
) -> Labelled:
    """Read ``x_train`` [n, channels, time] and ``y_train``, and of each row its ``session_train`` if that is there."""
    x_key, y_key = npz_keys(path, file, role)
    x, y = file[x_key], file[y_key]
    where = f"{path}:{x_key}"
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{where}: as many labels as recordings are wanted, got {list(x.shape)} and {list(y.shape)}")
    s_key = "session" + x_key[1:]
    sessions = [str(one) for one in file[s_key]] if s_key in file else [""] * len(x)
    if len(sessions) != len(x):
        raise TaskError(f"{path}:{s_key}: {len(x)} recordings want as many sessions, got {len(sessions)}")
    if len(x) == 0:
        return [], (), y
    recordings = [
        Recording(f"{where}[{number}]", session, signal)
        for number, (session, signal) in enumerate(zip(sessions, x, strict=True))
    ]
    known, targets = npz_targets(where, y, loss, own, names)
    return recordings, known, targets
