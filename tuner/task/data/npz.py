"""Arrays of an ``.npz``: which of them are a partition's samples and labels, and what the labels mean."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np

from tuner.arrays import Array, Labels
from tuner.errors import TaskError
from tuner.metrics import LossKind
from tuner.reading import open_regular
from tuner.task.data.npy import read_array
from tuner.task.data.targets import numbers_of_array

PartitionName = Literal["train", "val", "test"]
#: Names of a partition's samples, the first that exists; the labels' begin with y instead of x.
SAMPLES_KEYS: Mapping[PartitionName, tuple[str, ...]] = {
    "train": ("x_train", "x"),
    "val": ("x_val", "x_test", "x"),
    "test": ("x_test", "x"),
}
CLASSES_KEY = "classes"
MOST_CLASSES = 1_000_000
_SUFFIX = ".npy"
# What a damaged or encrypted zip file raises, or one that is compressed in a way this Python does not have.
_DAMAGED = (OSError, ValueError, EOFError, RuntimeError, OverflowError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


class _ZippedArrays(Mapping[str, Array]):
    """Arrays of a zip file by name, each read when asked for; numpy's own reader allocates before it looks."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self._members = {info.filename.removesuffix(_SUFFIX): info for info in file.infolist()}

    def __getitem__(self, key: str) -> Array:
        info = self._members[key]
        with self._file.open(info) as stream:
            return read_array(stream, info.file_size)

    def __contains__(self, key: object) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@contextmanager
def open_npz(path: Path) -> Iterator[Mapping[str, Array]]:
    """Open an ``.npz``; its arrays are read when asked for, inside the context.

    Raises:
        TaskError: The file is no ``.npz``, or an array in it cannot be read.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as zipped:
            yield _ZippedArrays(zipped)
    except _DAMAGED as error:
        raise TaskError(
            f"{path}: cannot be read as .npz ({error}): write it with numpy.savez, without objects"
        ) from error


def class_names(file: Mapping[str, Array]) -> list[str] | None:
    """Return the class names that an ``.npz`` holds; None where it holds none."""
    return [str(name) for name in file[CLASSES_KEY]] if CLASSES_KEY in file else None


def samples_key(path: Path, file: Mapping[str, Array], partition: PartitionName, *, labelled: bool = False) -> str:
    """Return the name of a partition's samples.

    Args:
        path: File, for messages.
        file: Its arrays.
        partition: Partition to look for.
        labelled: Whether the labels must be there too.

    Raises:
        TaskError: The file has no such arrays.
    """
    keys = SAMPLES_KEYS[partition]
    key = next((key for key in keys if key in file), None)
    if key is not None and (not labelled or labels_key(key) in file):
        return key
    if labelled:
        rule = f"the arrays {' or '.join(f'({key}, {labels_key(key)})' for key in keys)}"
    else:
        rule = f"one of {', '.join(keys)}"
    raise TaskError(f"{path}: {partition} data must be in {rule}, got {', '.join(file)}")


def labels_key(samples: str) -> str:
    """Return the name of the labels of samples: ``"y_train"`` for ``"x_train"``."""
    return "y" + samples[1:]


def targets_of_array(
    where: str, y: Array, loss: LossKind, own: Sequence[str] | None, borrowed: Sequence[str]
) -> tuple[tuple[str, ...], Labels]:
    """Check an array of labels, and return class names and each sample's place in them.

    Args:
        where: Place for messages.
        y: Integers [n] or [n, 1], or multi-hot [n, k]; of a regression numbers [n] or [n, outputs].
        loss: What a sample has: one label, several, or targets.
        own: Class names of the file.
        borrowed: Class names to use where the file has none.

    Returns:
        Names, and int64 [n] or float32 [n, len(names)]: multi-hot, or targets.

    Raises:
        TaskError: The array holds no labels, or more classes than there are names.
    """
    if loss == "regression":
        return numbers_of_array(where, y, own)
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "iu":  # noqa: PLR2004 - a column of integers is [n]
        y = y[:, 0]
    width = _number_of_classes(where, y, loss)
    names = tuple(own) if own is not None else (*borrowed, *map(str, range(len(borrowed), width)))
    if width > len(names) or len(set(names)) != len(names):
        raise TaskError(f"{where}: {width} classes need {width} different names in 'classes', got {len(set(names))}")
    if loss == "single-label":
        return names, y.astype(np.int64)
    hot = np.zeros((len(y), len(names)), np.float32)
    if y.ndim == 1:
        hot[np.arange(len(y)), y] = 1
    else:
        hot[:, :width] = y
    return names, hot


def _number_of_classes(where: str, y: Array, loss: LossKind) -> int:
    if y.ndim == 1 and y.dtype.kind in "iu":
        if y.min() < 0:
            raise TaskError(f"{where}: labels must be integers from 0, got {y.min()}")
        if y.max() >= MOST_CLASSES:
            raise TaskError(f"{where}: labels must be integers below {MOST_CLASSES}, got {y.max()}")
        return int(y.max()) + 1
    if y.ndim == 2 and y.dtype.kind in "biuf":  # noqa: PLR2004 - samples and labels
        if loss == "single-label":
            raise TaskError(
                f"{where}: the labels of a single-label task must be integers [n], got multi-hot {list(y.shape)}: "
                'set loss.kind = "multi-label"'
            )
        if not np.isin(y, (0, 1)).all():
            raise TaskError(f"{where}: multi-hot labels must be only 0 and 1")
        return int(y.shape[1])
    raise TaskError(
        f"{where}: labels must be integers [n], or multi-hot [n, k] for a multi-label task, "
        f"got {y.dtype} {list(y.shape)}"
    )
