"""Names and numbers of classes, for the kinds of targets that have them."""

from collections.abc import Collection, Sequence

from tuner.arrays import Array
from tuner.errors import BundleError, TaskError, nearest
from tuner.targets.base import Label, LabelsOf

MOST_CLASSES = 1_000_000
#: Digits of a name that is a number.
MOST_DIGITS = 9


def label_names(labels: Sequence[Label], names: Sequence[str], labels_of: LabelsOf, owner: str) -> list[list[str]]:
    """Return the names of the outputs that each sample has; a `BundleError` for a label that is none of them."""
    given = [list(label) if isinstance(label, list | tuple) else [str(label)] for label in labels]
    named = [[one for label in of_sample for one in labels_of(str(label))] for of_sample in given]
    stray = next((label for of_sample in named for label in of_sample if label not in names), None)
    if stray is not None:
        raise BundleError(f"{owner} has no label {stray!r}{nearest(stray, names)}: `tuner apply` trains new ones")
    return named


def class_numbers(where: str, y: Array) -> Array:
    """Return an array of class numbers, integers [n], or of multi-hot labels [n, k]; a `TaskError` for any other."""
    if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "iu":  # noqa: PLR2004 - a column of integers is [n]
        y = y[:, 0]
    if y.ndim == 1 and y.dtype.kind in "iu":
        if y.min() < 0:
            raise TaskError(f"{where}: labels must be integers from 0, got {y.min()}")
        if y.max() >= MOST_CLASSES:
            raise TaskError(f"{where}: labels must be integers below {MOST_CLASSES}, got {y.max()}")
    elif y.ndim != 2 or y.dtype.kind not in "biuf":  # noqa: PLR2004 - samples and labels
        raise TaskError(
            f"{where}: labels must be integers [n], or multi-hot [n, k] for a multi-label task, "
            f"got {y.dtype} {list(y.shape)}: number the classes from 0, and name them in an array 'classes'"
        )
    return y


def class_names(where: str, width: int, own: Sequence[str] | None, borrowed: Sequence[str]) -> tuple[str, ...]:
    """Return the names of so many classes: a file's own, or borrowed ones and numbers; a `TaskError` if some lack."""
    names = tuple(own) if own is not None else (*borrowed, *map(str, range(len(borrowed), width)))
    if width > len(names) or len(set(names)) != len(names):
        twice = next((f": {name!r} is there twice" for name in names if names.count(name) > 1), "")
        raise TaskError(
            f"{where}: {width} classes need {width} different names in 'classes', got {len(set(names))}{twice}"
        )
    return names


def sorted_names(labels: Sequence[tuple[str, ...]]) -> dict[str, int]:
    """Return the place of each label that some sample has, in their order: of numbers, 2 comes before 10."""
    found = {label for sample in labels for label in sample}
    in_order = sorted(found, key=lambda name: (int(name), name)) if are_numbers(found) else sorted(found)
    return {name: index for index, name in enumerate(in_order)}


def are_numbers(names: Collection[str]) -> bool:
    """Return whether each name is a number from 0, none of them twice."""
    is_each = all(name.isascii() and name.isdecimal() and len(name) <= MOST_DIGITS for name in names)
    return is_each and len({int(name) for name in names}) == len(names)
