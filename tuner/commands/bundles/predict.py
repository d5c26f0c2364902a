"""Predict files and folders with a bundle, one after the other: a file that cannot be predicted costs only itself."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tuner.errors import TaskError, TunerError
from tuner.reading import files_below, kind_of, kinds_of
from tuner.runtime import Personaliser
from tuner.runtime.infer.prediction import Prediction

#: A file, and its prediction or why there is none.
Answer = tuple[Path, Prediction | TunerError]


def predict(personaliser: Personaliser, paths: Iterable[Path], left_out: dict[Path, str]) -> Iterator[Answer]:
    """Yield the answer for each file, and for every file of the bundle's kind in folders, at any depth.

    Args:
        personaliser: The bundle.
        paths: Files and folders.
        left_out: Gets, of each folder, how many files of which other kinds it holds.
    """
    for path in paths:
        if kind_of(path) == "folder":
            yield from _predict_folder(personaliser, path, left_out)
        else:
            yield path, _predict_file(personaliser, path)


def _predict_folder(personaliser: Personaliser, folder: Path, left_out: dict[Path, str]) -> Iterator[Answer]:
    suffixes = personaliser.bundle.kind.suffixes
    closed, others = list[OSError](), list[Path]()
    empty = True
    for path in files_below(folder, closed.append):
        if path.suffix.lower() in suffixes and kind_of(path) == "file":
            empty = False
            yield path, _predict_file(personaliser, path)
        else:
            others.append(path)
    if others and not empty:
        left_out[folder] = kinds_of(others)
    for error in closed:
        path = Path(error.filename)
        yield path, TaskError(f"{path}: cannot be read ({error.strerror}): check its permissions")
    if empty and not closed:
        there = f", but {kinds_of(others)}" if others else ""
        endings = ", ".join(sorted(suffixes))
        yield folder, TaskError(f"{folder}: no file of the model's kind ({endings}) in it{there}: give another folder")


def _predict_file(personaliser: Personaliser, path: Path) -> Prediction | TunerError:
    try:
        return personaliser.predict_file(path)
    except TunerError as error:
        return error if str(path) in str(error) else TaskError(f"{path}: {error}")
