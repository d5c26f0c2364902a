"""Targets of a regression: one number or several a sample, from an array or from the cells of a listing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tuner.arrays import Array, Floats
from tuner.errors import TaskError

_OUTPUT = "output "


def output_names(count: int) -> tuple[str, ...]:
    """Return the names of outputs that nobody named: ``"output 0"`` and so on."""
    return tuple(f"{_OUTPUT}{number}" for number in range(count))


def are_given(names: Sequence[str]) -> bool:
    """Return whether somebody named the outputs."""
    return tuple(names) != output_names(len(names))


def numbers_of_array(where: str, y: Array, own: Sequence[str] | None) -> tuple[tuple[str, ...], Floats]:
    """Check an array of targets.

    Args:
        where: Place for messages.
        y: Numbers [n] or [n, outputs].
        own: Names of the outputs, where the file has any.

    Returns:
        Names of the outputs, and float32 [n, outputs].

    Raises:
        TaskError: The array holds something else, or as many names do not fit it.
    """
    if y.ndim not in {1, 2} or y.dtype.kind not in "biuf" or y.shape[1:] == (0,):
        raise TaskError(
            f"{where}: the targets of a regression must be numbers [n] or [n, outputs], got {y.dtype} {list(y.shape)}"
        )
    return _checked(where, y.reshape(len(y), -1), own)


def numbers_of_cells(path: Path, cells: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], Floats]:
    """Read the targets that a listing gives as text, or class folders by their names.

    Args:
        path: The listing, for messages.
        cells: Numbers of each sample, as text.

    Returns:
        Names of the outputs, and float32 [n, outputs].

    Raises:
        TaskError: A cell is no number, or samples differ in how many they have.
    """
    width = len(cells[0]) if cells else 1
    rows = np.empty((len(cells), width))
    for row, sample in zip(rows, cells, strict=True):
        if len(sample) != width or not width:
            raise TaskError(
                f"{path}: each sample of a regression must have as many numbers, separated by |, "
                f"got {width} and {len(sample)}"
            )
        for column, cell in enumerate(sample):
            try:
                row[column] = float(cell)
            except ValueError:
                raise TaskError(
                    f"{path}: the target of a regression must be a number, got {cell!r}: correct it, or leave out "
                    'loss.kind = "regression"'
                ) from None
    return _checked(str(path), rows, None)


def _checked(where: str, values: Array, own: Sequence[str] | None) -> tuple[tuple[str, ...], Floats]:
    targets = values.astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(targets).all(axis=1))
    if len(broken):
        raise TaskError(
            f"{where}: targets must be finite numbers, got {values[broken[0]].tolist()} for sample {broken[0]}: "
            "remove the sample or correct it"
        )
    names = tuple(own) if own is not None else output_names(targets.shape[1])
    if len(names) != targets.shape[1] or len(set(names)) != len(names):
        raise TaskError(
            f"{where}: {targets.shape[1]} outputs need as many different names in 'classes', got {len(set(names))}"
        )
    return names, targets
