"""Further scores as objectives: functions of predictions and labels of the local validation samples.

Classes are those that occur in the labels. Where a sample may have several labels, each label is a class.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.metrics import expected_calibration_error
from tuner.plugin import hookimpl, objective
from tuner.targets.strata import presence

Array = npt.NDArray[Any]


def _by_class(predictions: Array, labels: Array) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return whether samples are predicted as, and are of, each class that occurs, bool [n, classes]."""
    true = presence(labels)
    occurs = true.any(axis=0)
    return presence(predictions, np.unique(labels))[:, occurs], true[:, occurs]


def _recalls(predictions: Array, labels: Array) -> Array:
    """Return the share of each class's samples that is predicted as it."""
    predicted, true = _by_class(predictions, labels)
    return np.asarray((predicted & true).sum(axis=0) / true.sum(axis=0))


@objective(unit="%", needs="has_classes")
def macro_f1(predictions: Array, labels: Array) -> float:
    """Return the mean F1 of the classes."""
    predicted, true = _by_class(predictions, labels)
    return float((2 * (predicted & true).sum(axis=0) / (predicted.sum(axis=0) + true.sum(axis=0))).mean())


@objective(unit="%", needs="one_class")
def balanced_accuracy(predictions: Array, labels: Array) -> float:
    """Return the mean over the classes of the share that is right."""
    return float(_recalls(predictions, labels).mean())


@objective(unit="%", needs="has_classes")
def worst_class(predictions: Array, labels: Array) -> float:
    """Return the share that is right of the class that has the least."""
    return float(_recalls(predictions, labels).min())


@objective("minimise", unit="%", needs="has_classes")
def calibration_error(predictions: Array, labels: Array, probabilities: Array) -> float:
    """Return the expected calibration error; of several labels, over all of them."""
    if labels.ndim == 1:
        return expected_calibration_error(probabilities.max(axis=1), predictions == labels)
    return expected_calibration_error(probabilities.ravel(), labels.ravel())


@hookimpl
def tuner_objectives() -> Iterable[Callable[..., float]]:
    """Offer the scores."""
    return [macro_f1, balanced_accuracy, worst_class, calibration_error]
