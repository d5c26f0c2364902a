"""Targets of a regression on a device: text or numbers in their own unit; and standardised, as a model learns them."""

import math
from collections.abc import Sequence

import numpy as np

from tuner.arrays import Array, Doubles, Floats
from tuner.bundle.format import Bundle
from tuner.errors import BundleError
from tuner.metrics import TOLERANCE
from tuner.task import TargetScale

SEPARATOR = "|"  # between the numbers of a sample that has several
#: Targets of a sample: a number, or several; or the same as text.
Target = str | float | Sequence[str | float]


def text_of(values: Array) -> str:
    """Return values as text: ``"-10.3"``, or ``"1.5|20"``."""
    return SEPARATOR.join(f"{value:.6g}" for value in values.tolist())


def values_of(logits: Floats, scale: TargetScale) -> Doubles:
    """Return what a model says in the unit of the targets.

    Args:
        logits: float32 [..., outputs].
        scale: The bundle's.
    """
    values: Doubles = logits * np.array(scale.std) + np.array(scale.mean)
    return values


def standardised_targets(targets: Sequence[Target], bundle: Bundle) -> Floats:
    """Return targets as the model learns them, float32 [n, outputs].

    Raises:
        BundleError: A sample does not have a number for each output.
    """
    scale = _scale_of(bundle)
    rows = np.array([_numbers(target, bundle) for target in targets]).reshape(-1, len(scale.mean))
    standardised: Floats = ((rows - np.array(scale.mean)) / np.array(scale.std)).astype(np.float32)
    return standardised


def is_target(text: str, bundle: Bundle) -> bool:
    """Return whether a text has a number for each output of a bundle."""
    try:
        _numbers(text, bundle)
    except BundleError:
        return False
    return True


def is_near(answer: str, truth: str, bundle: Bundle) -> bool:
    """Return whether every output is within `TOLERANCE` deviations of its target; both as text.

    Raises:
        BundleError: The truth does not have a number for each output.
    """
    near, far = standardised_targets([answer, truth], bundle)
    return bool((np.abs(near - far) <= TOLERANCE).all())


def _numbers(target: Target, bundle: Bundle) -> list[float]:
    parts = target.split(SEPARATOR) if isinstance(target, str) else target
    try:
        numbers = [float(part) for part in (parts if isinstance(parts, Sequence) else [parts])]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != len(bundle.labels) or not all(map(math.isfinite, numbers)):
        raise BundleError(
            f"{bundle.name} predicts {len(bundle.labels)} numbers ({', '.join(bundle.labels[:4])}), but a sample has "
            f"the target {target!r:.80}: give a number for each, separated by {SEPARATOR}"
        )
    return numbers


def _scale_of(bundle: Bundle) -> TargetScale:
    if bundle.info.targets is None:
        raise BundleError(f"{bundle.name} predicts labels, no numbers: give labels")
    return bundle.info.targets
