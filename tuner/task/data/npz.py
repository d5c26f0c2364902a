"""Arrays of an ``.npz``: which of them are a partition's samples and labels, and what the labels mean."""

import lzma
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tuner.arrays import Array
from tuner.errors import TaskError
from tuner.reading import open_regular, same_form
from tuner.task.data.npy import read_array

PartitionName = Literal["train", "val", "test"]
#: Names of a partition's samples, the first that exists; the labels' begin with y instead of x.
SAMPLES_KEYS: Mapping[PartitionName, tuple[str, ...]] = {
    "train": ("x_train", "x"),
    "val": ("x_val", "x_test", "x"),
    "test": ("x_test", "x"),
}
#: Other names of samples and of their labels, as Keras and others have them: ``X_train``, ``train_images``.
PAIRS = (("x", "y"), ("X", "y"), ("images", "labels"), ("data", "labels"))
PARTS: Mapping[str, tuple[str, ...]] = {"val": ("val", "valid", "validation")}
CLASSES_KEY = "classes"
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
    """Return the class names that an ``.npz`` holds; None where it holds none; see `texts`."""
    return texts(file, CLASSES_KEY) if CLASSES_KEY in file else None


def texts(file: Mapping[str, Array], key: str) -> list[str]:
    """Return an array of names, each in Unicode's composed form.

    Raises:
        TaskError: It is no list, or its bytes are not UTF-8.
    """
    names = file[key]
    if names.ndim != 1:
        raise TaskError(f"{key} must be a list of names, got {names.dtype} {list(names.shape)}: write an array [n]")
    try:
        return [same_form(name.decode() if isinstance(name, bytes) else str(name)) for name in names.tolist()]
    except UnicodeDecodeError as error:
        raise TaskError(f"{key} must be text, or bytes in UTF-8, got {error.object!r}: write it as text") from None


def samples_key(path: Path, file: Mapping[str, Array], partition: PartitionName, *, labelled: bool = False) -> str:
    """Return the name of a partition's samples, which must have labels if `labelled`; else it is a `TaskError`."""
    keys = SAMPLES_KEYS[partition]
    key = own_key(file, partition) or next((key for key in (*keys, *(x for x, _ in PAIRS)) if key in file), None)
    if key is not None and (not labelled or labels_key(key) in file):
        return key
    if labelled:
        rule = f"the arrays {' or '.join(f'({key}, {labels_key(key)})' for key in keys)}"
    else:
        rule = f"one of {', '.join(keys)}"
    raise TaskError(f"{path}: {partition} data must be in {rule}, got {', '.join(file)}")


def own_key(names: Collection[str], partition: PartitionName) -> str | None:
    """Return the name of samples that are this partition's alone, such as ``x_val`` or ``val_images``."""
    parts = PARTS.get(partition, (partition,))
    own = (key for part in parts for x, _ in PAIRS for key in (f"{x}_{part}", f"{part}_{x}"))
    return next((key for key in own if key in names), None)


def read_labelled(path: Path, file: Mapping[str, Array], key: str, noun: str = "sample") -> tuple[Array, Array]:
    """Return samples of an ``.npz`` and as many labels, or raise a `TaskError`."""
    x, y = file[key], file[labels_key(key)]
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise TaskError(f"{path}:{key}: there must be one label per {noun}, got {list(x.shape)} and {list(y.shape)}")
    return x, y


def labels_key(samples: str) -> str:
    """Return the name of the labels of samples: ``"y_train"`` for ``"x_train"``, ``"train_labels"`` of images."""
    return _renamed(samples, dict(PAIRS))


def sessions_key(samples: str) -> str:
    """Return the name of the sessions of samples: ``"session_train"`` for ``"x_train"``, ``"train_session"``."""
    return _renamed(samples, dict.fromkeys(dict(PAIRS), "session"))


def _renamed(samples: str, names: Mapping[str, str]) -> str:
    return "_".join(names.get(word, word) for word in samples.split("_"))
