"""Predict files and folders with a bundle, one after the other: a file that cannot be predicted costs only itself."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tuner.errors import TaskError, TunerError
from tuner.reading import kind_of
from tuner.runtime import Personaliser
from tuner.runtime.infer.prediction import Prediction

#: A file, and its prediction or why there is none.
Answer = tuple[Path, Prediction | TunerError]


def predict(personaliser: Personaliser, paths: Iterable[Path]) -> Iterator[Answer]:
    """Yield the answer for each file, and for every file of the bundle's kind in folders, at any depth."""
    for path in paths:
        if kind_of(path) == "folder":
            yield from _predict_folder(personaliser, path)
        else:
            yield path, _predict_file(personaliser, path)


def _predict_folder(personaliser: Personaliser, folder: Path) -> Iterator[Answer]:
    suffixes = personaliser.bundle.kind.suffixes
    closed: list[OSError] = []
    empty = True
    for above, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(above, name)
            if path.suffix.lower() in suffixes and not name.startswith(".") and kind_of(path) == "file":
                empty = False
                yield path, _predict_file(personaliser, path)
    for error in closed:
        path = Path(error.filename)
        yield path, TaskError(f"{path}: cannot be read ({error.strerror}): check its permissions")
    if empty and not closed:
        endings = ", ".join(sorted(suffixes))
        yield folder, TaskError(f"{folder}: no file of the model's kind ({endings}) in it: give another folder")


def _predict_file(personaliser: Personaliser, path: Path) -> Prediction | TunerError:
    try:
        return personaliser.predict_file(path)
    except TunerError as error:
        return error if str(path) in str(error) else TaskError(f"{path}: {error}")
