"""A data entry of a task file: a folder of class folders, a CSV manifest, or an ``.npz``."""

import csv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TaskError
from tuner.task.samples import ArraySamples, FileSamples, Samples
from tuner.task.spec import InputSpec

Role = Literal["train", "val", "test"]
Loss = Literal["single-label", "multi-label"]

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif"})
_KEYS: dict[Role, tuple[str, ...]] = {
    "train": ("x_train", "x"),
    "val": ("x_val", "x_test", "x"),
    "test": ("x_test", "x"),
}


@dataclass(frozen=True)
class Origin:
    """Which recordings the samples are windows of, so that no window of one is on both sides of a split.

    Attributes:
        names: Of the recordings.
        sessions: Of each recording, as ``"person/session"``; empty where nothing is known.
        recordings: int64 [n], each sample's place in `names`.
    """

    names: tuple[str, ...]
    sessions: tuple[str, ...]
    recordings: NDArray[np.int64]


@dataclass(frozen=True)
class Entry:
    """What an entry holds, in its own class names; rows of the union head come later.

    Attributes:
        source: What it was read from, for messages and to notice the same data used twice.
        names: Its class names; where no classes file says otherwise, a name's place is its row in the given head.
        targets: Places in `names`: int64 [n], or multi-hot float32 [n, len(names)].
        build: Makes the samples, given their labels as rows of the union head.
        origin: Of samples that are windows of recordings.
    """

    source: str
    names: tuple[str, ...]
    targets: NDArray[Any]
    build: Callable[[NDArray[Any]], Samples]
    origin: Origin | None = None

    def occurring(self) -> tuple[int, ...]:
        """Return the places in `names` that at least one sample has."""
        if self.targets.ndim > 1:
            return tuple(np.flatnonzero((self.targets > 0).any(axis=0)).tolist())
        return tuple(np.unique(self.targets).tolist())


def read_entry(path: Path, role: Role, spec: InputSpec, loss: Loss, names: Sequence[str] | None = None) -> Entry:
    """Read what one entry lists; images stay on disk.

    Args:
        path: Absolute path of a folder, a ``.csv`` or an ``.npz``.
        role: Which split is wanted, as an ``.npz`` may hold several.
        spec: Kind and size of the samples.
        loss: Whether a sample may have several labels.
        names: Class names for an ``.npz`` that has none of its own.

    Raises:
        TaskError: It is missing, empty, malformed, or not of the kind.
    """
    if not path.exists():
        raise TaskError(f"{path}: no such file or folder, wanted as {role} data: check the path in the task file")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _read_npz(path, role, spec, loss, names)
    if not path.is_dir() and suffix != ".csv":
        raise TaskError(f"{path}: data is a folder of class folders, a .csv manifest or an .npz, not {suffix!r}")
    if spec.kind == "arrays":
        raise TaskError(f'{path}: kind "arrays" is read from an .npz; for image files set kind = "images"')
    try:
        files, labels = read_folder(path) if path.is_dir() else read_manifest(path, loss)[:2]
    except OSError as error:
        raise TaskError(f"{error.filename or path}: cannot be read ({error.strerror}): check permissions") from error
    if not files:
        raise TaskError(f"{path}: the {role} split is empty: it wants at least one sample")
    known = tuple(sorted({label for several in labels for label in several}))
    return Entry(str(path), known, targets_of(labels, known, loss), lambda rows: FileSamples(files, rows, spec))


def read_unlabelled(path: Path, role: Role, spec: InputSpec, loss: Loss) -> Entry:
    """Read samples without labels: every image anywhere below a folder, a manifest's files, or an ``.npz``'s x.

    Raises:
        TaskError: As `read_entry`.
    """
    if path.suffix.lower() != ".npz" and not path.is_dir():
        whole = read_entry(path, role, spec, loss)
        count, build = len(whole.targets), whole.build
    elif path.is_dir():
        found = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
        files = sorted(file for file in found if not file.name.startswith("."))
        if not files:
            raise TaskError(f"{path}: the {role} split is empty: it wants at least one sample")
        count, build = len(files), lambda rows: FileSamples(files, rows, spec)
    else:
        key, x = _read_inputs(path, role)
        count, build = len(x), lambda rows: ArraySamples(x, rows, spec, key)
    return without_labels(Entry(str(path), (), np.zeros(count, np.int64), build), loss)


def without_labels(entry: Entry, loss: Loss) -> Entry:
    """Return an entry with one class that stands for nothing; where samples may have several labels, none has it."""
    single = loss == "single-label"
    targets = np.zeros(len(entry.targets) if single else (len(entry.targets), 1), np.int64 if single else np.float32)
    return replace(entry, names=("",), targets=targets)


def read_folder(
    folder: Path, suffixes: frozenset[str] = IMAGE_SUFFIXES, noun: str = "images"
) -> tuple[list[Path], list[tuple[str, ...]]]:
    """List the files of class folders, and each one's label.

    Raises:
        TaskError: There are no class folders, or one is empty.
    """
    files: list[Path] = []
    labels: list[tuple[str, ...]] = []
    classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if not classes:
        raise TaskError(f"{folder}: no class folders in it: put each class's {noun} in a folder of its name")
    for place in classes:
        found = sorted(
            file
            for file in place.iterdir()
            if file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()
        )
        if not found:
            raise TaskError(f"{place}: no {noun} ({', '.join(sorted(suffixes))}) in it: add some or remove it")
        files += found
        labels += [(place.name,)] * len(found)
    return files, labels


def read_manifest(
    path: Path, loss: Loss, *, sessions: bool = False
) -> tuple[list[Path], list[tuple[str, ...]], list[str]]:
    """List the files of a manifest, each one's labels, and its session: empty without a third column.

    Raises:
        TaskError: A line is not as the header says, or names no file.
    """
    files: list[Path] = []
    labels: list[tuple[str, ...]] = []
    whose: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream, strict=True)
            header = [cell.strip() for cell in next(rows, [])]
            if header != ["path", "label"] and not (sessions and header == ["path", "label", "session"]):
                wanted = "'path,label' or 'path,label,session'" if sessions else "'path,label'"
                raise TaskError(f"{path}: the first line wants {wanted}, got {','.join(header)!r}")
            for row in rows:
                if row:
                    files.append(_listed_file(path, rows.line_num, row, header))
                    labels.append(_listed_labels(path, rows.line_num, row[1], loss))
                    whose.append("".join(row[2:]).strip())
    except (UnicodeDecodeError, csv.Error) as error:
        raise TaskError(
            f"{path}: not a CSV manifest in UTF-8 ({error}): save it as CSV with header path,label"
        ) from error
    return files, labels, whose


def _listed_file(path: Path, line: int, row: list[str], header: list[str]) -> Path:
    if len(row) != len(header):
        raise TaskError(
            f"{path}:{line}: a line wants {','.join(header)}, got {len(row)} cells: quote a path with commas"
        )
    file = path.parent / row[0].strip()
    if not file.is_file():
        raise TaskError(f"{path}:{line}: no such file {file}: paths are relative to the manifest")
    return file


def _listed_labels(path: Path, line: int, cell: str, loss: Loss) -> tuple[str, ...]:
    labels = tuple(part.strip() for part in cell.split("|") if part.strip())
    if loss == "single-label" and len(labels) != 1:
        way_out = 'set loss.kind = "multi-label"' if labels else "name its class"
        raise TaskError(f"{path}:{line}: a single-label task wants one label, got {cell.strip()!r}: {way_out}")
    return labels


def targets_of(labels: Sequence[tuple[str, ...]], names: tuple[str, ...], loss: Loss) -> NDArray[Any]:
    """Turn labels into places in `names`: int64 [n], or multi-hot float32 [n, len(names)]."""
    place = {name: index for index, name in enumerate(names)}
    if loss == "single-label":
        return np.array([place[label] for (label,) in labels], np.int64)
    hot = np.zeros((len(labels), len(names)), np.float32)
    for row, several in enumerate(labels):
        hot[row, [place[label] for label in several]] = 1
    return hot


def _read_npz(path: Path, role: Role, spec: InputSpec, loss: Loss, names: Sequence[str] | None) -> Entry:
    try:
        with np.load(path, allow_pickle=False) as file:
            x_key, y_key = npz_keys(path, file, role)
            x, y = file[x_key], file[y_key]
            own = [str(name) for name in file["classes"]] if "classes" in file.files else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TaskError(
            f"{path}: cannot be read as .npz ({error}): write it with numpy.savez, without objects"
        ) from error
    where = f"{path}:{x_key}"
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{where}: as many labels as samples are wanted, got {list(x.shape)} and {list(y.shape)}")
    if len(x) == 0:
        raise TaskError(f"{where}: the {role} split is empty: it wants at least one sample")
    known, targets = npz_targets(where, y, loss, own, names or ())
    ArraySamples(x[:1], targets[:1], spec, where)  # says now what is wrong with shape or type
    return Entry(where, known, targets, lambda rows: ArraySamples(x, rows, spec, x_key))


def _read_inputs(path: Path, role: Role) -> tuple[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            key = next((key for key in _KEYS[role] if key in file.files), None)
            if key is None:
                raise TaskError(
                    f"{path}: {role} data wants one of {', '.join(_KEYS[role])}, got {', '.join(file.files)}"
                )
            return key, file[key]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TaskError(
            f"{path}: cannot be read as .npz ({error}): write it with numpy.savez, without objects"
        ) from error


def npz_keys(path: Path, file: Mapping[str, NDArray[Any]], role: Role) -> tuple[str, str]:
    """Return the names of a split's samples and labels in an ``.npz``.

    Raises:
        TaskError: It holds no such arrays.
    """
    x_key = next((key for key in _KEYS[role] if key in file), None)
    if x_key is None or "y" + x_key[1:] not in file:
        wanted = " or ".join(f"({key}, y{key[1:]})" for key in _KEYS[role])
        raise TaskError(f"{path}: {role} data wants the arrays {wanted}, got {', '.join(file)}")
    return x_key, "y" + x_key[1:]


def npz_targets(
    where: str, y: NDArray[Any], loss: Loss, own: Sequence[str] | None, borrowed: Sequence[str]
) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Check an array of labels: class names, and int64 [n] or multi-hot float32 [n, len(names)].

    Args:
        where: For messages.
        y: Integers [n] or [n, 1], or multi-hot [n, k].
        loss: Whether a sample may have several labels.
        own: Class names the file holds.
        borrowed: Names to use where it holds none.

    Raises:
        TaskError: They are no labels, or more than there are names.
    """
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "iu":  # noqa: PLR2004 - a column of integers is [n]
        y = y[:, 0]
    if y.ndim == 1 and y.dtype.kind in "iu":
        if y.min() < 0:
            raise TaskError(f"{where}: labels want integers from 0, got {y.min()}")
        width = int(y.max()) + 1
    elif y.ndim == 2 and y.dtype.kind in "biuf":  # noqa: PLR2004 - samples and labels
        if loss == "single-label":
            raise TaskError(
                f"{where}: a single-label task wants integer labels [n], got multi-hot {list(y.shape)}: "
                'set loss.kind = "multi-label"'
            )
        if not np.isin(y, (0, 1)).all():
            raise TaskError(f"{where}: multi-hot labels want only 0 and 1")
        width = y.shape[1]
    else:
        raise TaskError(
            f"{where}: labels want integers [n], or multi-hot [n, k] for multi-label, got {y.dtype} {list(y.shape)}"
        )
    known = tuple(own) if own is not None else (*borrowed, *map(str, range(len(borrowed), width)))
    if width > len(known) or len(set(known)) != len(known):
        raise TaskError(f"{where}: {width} classes want as many different names, got {len(set(known))} in 'classes'")
    if loss == "single-label":
        return known, y.astype(np.int64)
    hot = np.zeros((len(y), len(known)), np.float32)
    if y.ndim == 1:
        hot[np.arange(len(y)), y] = 1
    else:
        hot[:, :width] = y
    return known, hot
