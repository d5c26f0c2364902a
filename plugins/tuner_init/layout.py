"""Where a user's data are: of which kind, and which are for training, validation and test."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tuner.arrays import Array
from tuner.errors import TaskError, nearest
from tuner.reading import files_below, is_hidden, kind_of, kinds_of, read_text
from tuner.task.data.listing import IMAGE_SUFFIXES, MOST_MANIFEST_BYTES, divided
from tuner.task.data.npy import read_npy
from tuner.task.data.npz import labels_key, open_npz, own_key, samples_key
from tuner.task.data.table import SUFFIX, Table, is_manifest, label_column, read_table, split_column
from tuner.task.inputs import input_kind, kind_names, plugin_of_kind

TRAIN = "train"
VALIDATION = ("val", "valid", "validation")
TEST = "test"
#: Files that hold many samples.
TABLES = (".npz", ".npy", SUFFIX)
MOST_LOOKED_AT = 1000  # files, to say what a folder holds instead
#: Rows are steps in time where neighbours are so much alike: their correlation.
ALIKE = 0.5
#: Axes of arrays of rows, and of signals or grey pictures.
_ROWS, _SIGNALS = 2, 3


@dataclass(frozen=True, slots=True)
class DataPlaces:
    """Entries of a task file; without `val`, some of `train` are to be held out.

    Attributes:
        kind: Kind of the samples.
        notes: Lines on how the data are read.
    """

    kind: str
    train: Path
    val: Path | None = None
    test: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the data: of the folder or file, or of the folder that ``train`` is in."""
        place = split_column(self.train)[0].resolve()
        if kind_of(place) == "folder":
            return place.parent.name if place.name == TRAIN else place.name
        return place.parent.name if TRAIN in place.stem else place.stem


def find_data(place: Path, kind: str | None = None) -> DataPlaces:
    """Return where training, validation and test data are, and of which kind.

    A folder holds ``train`` and maybe ``val`` and ``test``; or is such a ``train``; or holds the class folders, or
    tables. A table is an array file or a ``.csv``, which may end in ``#COLUMN`` of its labels.

    Args:
        place: The folder or file.
        kind: Kind of the samples; found out where it is None.

    Raises:
        TaskError: There are none.
    """
    if kind is not None and kind not in kind_names():
        raise TaskError(f"--kind must be one of {', '.join(kind_names())}, got {kind!r}{nearest(kind, kind_names())}")
    try:
        file, part = split_column(place)
        if kind_of(file) == "folder" and (table := _table_in(file)) is not None:
            file = table
        if kind_of(file) == "file":
            return _in_file(file, part, kind)
        return _in_folder(place, kind)
    except OSError as error:
        raise TaskError(f"{error.filename}: cannot be read ({error.strerror}): check its permissions") from None


def _in_folder(folder: Path, kind: str | None) -> DataPlaces:
    if kind_of(folder) != "folder":
        what = "no such folder" if kind_of(folder) == "nothing" else "not a folder"
        raise TaskError(
            f"{folder}: {what}: give the folder of your photos, sounds or recordings, with a folder for each class in "
            "it, or a file of arrays or of a table"
        )
    train = folder / TRAIN
    inside = folder if _has_classes(train) else folder.parent if folder.resolve().name == TRAIN else None
    if inside is None:
        return DataPlaces(_checked_kind(folder, kind), folder)
    train = train if inside == folder else folder
    found = _checked_kind(train, kind)
    val = next((inside / name for name in VALIDATION if _has_classes(inside / name)), None)
    return DataPlaces(found, train, val, inside / TEST if _has_classes(inside / TEST) else None)


def _table_in(folder: Path) -> Path | None:
    """Return the table of the training samples in a folder without class folders."""
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLES and kind_of(path) == "file")
    with_labels = [path for path in tables if path.suffix != ".npy" or kind_of(_labels_of(path)) == "file"]
    train = [path for path in with_labels if TRAIN in path.stem] or with_labels
    return train[0] if len(train) == 1 and not _has_classes(folder) else None


def _labels_of(samples: Path) -> Path:
    labels = samples.with_name(f"{labels_key(samples.stem)}{samples.suffix}")
    return labels if labels != samples else samples / "none"


def _in_file(file: Path, part: str, kind: str | None) -> DataPlaces:
    suffix, mark = file.suffix.lower(), f"#{part}" if part else ""
    others = {name: _sibling(file, names) for name, names in (("val", VALIDATION), ("test", (TEST,)))}
    notes: tuple[str, ...] = ()
    kind = kind or next((name for name in kind_names() if input_kind(name).claims(file)), None)
    if kind is not None and plugin_of_kind(kind) and not (suffix == SUFFIX and is_manifest(file)):
        pass  # it is the plugin's to read
    elif suffix == SUFFIX and is_manifest(file):
        kind = kind or _kind_of_files(_listed(file))
    elif suffix == SUFFIX:
        column = part or label_column(file, needed=True)
        table, mark = read_table(file, column), f"#{column}"
        read_as = kind or ("signals" if is_series(table) else "arrays")
        how, other = ("steps in time", "arrays") if read_as == "signals" else ("samples", "signals")
        notes = (f"rows are read as {how}, labelled by the column {column!r} (--kind {other}: as the other)",) * (
            not kind
        )
        kind = read_as
    elif suffix == ".npy":
        kind = kind or _kind_of_array(read_npy(file))
    elif suffix == ".npz":
        with open_npz(file) as arrays:
            if any(key.endswith("/signal") for key in arrays):
                return DataPlaces(kind or "signals", Path(f"{file}{mark}"))
            kind = kind or _kind_of_array(arrays[samples_key(file, arrays, "train", labelled=True)])
            for name in ("val", "test"):
                others[name] = file if own_key(arrays, name) else others[name]
    else:
        raise TaskError(f"{file}: must be a folder, or a file {', '.join(TABLES)}, got {suffix!r}")
    val, test = (None if path is None else Path(f"{path}{mark}") for path in (others["val"], others["test"]))
    return DataPlaces(kind, Path(f"{file}{mark}"), val, test, notes)


def _listed(manifest: Path) -> list[Path]:
    """Return the paths that a manifest lists; errors in its lines are reported where they are read."""
    text = read_text(manifest, TaskError, "save it as CSV in UTF-8 with header path,label", MOST_MANIFEST_BYTES)
    try:
        return [Path(row[0].strip()) for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
    except csv.Error:
        return []


def _sibling(file: Path, names: tuple[str, ...]) -> Path | None:
    """Return the file of another partition next to one that is named after ``train``."""
    paths = (file.with_name(file.name.replace(TRAIN, name)) for name in names if TRAIN in file.stem)
    return next((path for path in paths if kind_of(path) == "file"), None)


def _kind_of_array(samples: Array) -> str:
    if samples.ndim == _ROWS or samples.dtype.kind not in "buif":
        return "arrays"
    is_picture = samples.dtype.name == "uint8" and (samples.ndim == _SIGNALS or samples.shape[-1] in {1, 3})
    if is_picture:
        return "arrays" if samples.shape[1:3] in {(8, 8), (28, 28)} and samples.shape[-1] != 3 else "images"  # noqa: PLR2004 - colours
    return "signals" if samples.ndim == _SIGNALS else "arrays"


def _kind_of_files(files: list[Path]) -> str:
    counts = {name: sum(file.suffix.lower() in _suffixes(name) for file in files) for name in _folder_kinds()}
    return max(counts, key=lambda name: counts[name])


def _folder_kinds() -> list[str]:
    """Return the kinds whose samples may be files in class folders; photos first."""
    return sorted({*kind_names()} - {"arrays"}, key=lambda name: name != "images")


def _suffixes(name: str) -> frozenset[str]:
    return IMAGE_SUFFIXES if name == "images" else input_kind(name).suffixes


def _classes(folder: Path) -> Iterator[Path]:
    return (child for child in folder.iterdir() if not is_hidden(child) and kind_of(child) == "folder")


def _has_classes(folder: Path) -> bool:
    return kind_of(folder) == "folder" and any(_classes(folder))


def _checked_kind(folder: Path, kind: str | None) -> str:
    """Return the kind of the samples in class folders; a `TaskError` says what is there instead.

    Where they are all deeper, the folders may be years or partitions: a single one is no class folder.
    """
    below = {child: [*files_below(child)] for child in _classes(folder)}
    kind = kind or _kind_of_files([file for files in below.values() for file in files] or [*folder.iterdir()])
    suffixes, noun = _suffixes(kind), "photos" if kind == "images" else "files"
    classes = [child for child, files in below.items() if divided(files, suffixes)[0]]
    if len(classes) > 1 or any(_count(child, suffixes) for child in classes):
        return kind
    if count := _count(folder, suffixes):
        ending = next(path.suffix.lower() for path in sorted(folder.iterdir()) if path.suffix.lower() in suffixes)
        raise TaskError(
            f"{folder}: holds {count:,} {noun}, but no folder for each class: put the {noun} of each class into a "
            f"folder named after it, such as hat/1{ending}, or list them with their classes in a .csv (path,label)"
        )
    if classes:
        raise TaskError(
            f"{folder}: the {noun} are deeper than one folder below it: give the folder that holds the class folders"
        )
    some = [path for path, _ in zip(files_below(folder), range(MOST_LOOKED_AT), strict=False)]
    there = kinds_of(path for path in some if kind_of(path) == "file")
    readable = ", ".join(sorted(frozenset().union(*map(_suffixes, _folder_kinds()))))
    raise TaskError(
        f"{folder}: holds no photos, sounds or recordings ({readable}){f', but {there}' if there else ''}: "
        "give the folder of your data"
    )


def _count(folder: Path, suffixes: frozenset[str]) -> int:
    return sum(path.suffix.lower() in suffixes and not is_hidden(path) for path in folder.iterdir())


def is_series(table: Table) -> bool:
    """Return whether rows seem to be steps in time: there is a column of times, or neighbours are much alike."""
    same = np.array([one == other for one, other in pairwise(zip(table.labels, table.sessions, strict=True))], bool)
    if table.is_timed or same.sum() < len(same) / 2:
        return table.is_timed
    groups = np.array([f"{label} {session}" for label, session in zip(table.labels, table.sessions, strict=True)])
    centred = table.values.astype(np.float64)
    for group in np.unique(groups):
        centred[groups == group] -= centred[groups == group].mean(axis=0)
    spread = (centred**2).mean(axis=0)
    together = (centred[1:] * centred[:-1])[same].mean(axis=0)
    return bool(np.median(together[spread > 0] / spread[spread > 0]) > ALIKE) if (spread > 0).any() else False
