"""How sure each exit is of its answers, and how right these are."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.metrics import TOLERANCE, LossKind
from tuner.runtime.infer.agreement import agreements

Floats = npt.NDArray[np.floating]
BINS = 15
TEMPERATURES = np.geomspace(0.05, 10.0, 81)


def confidences(
    logits: Floats, temperature: float | Sequence[float] = 1.0, *, loss: LossKind = "single-label"
) -> npt.NDArray[np.float64]:
    """Return the confidence of each row.

    It is the largest probability; with several labels, the mean of max(p, 1 − p); of a regression the agreement with
    the exit before (`tuner.runtime.infer.agreement`), which no temperature changes.

    Args:
        logits: float [..., n, classes]; of a regression those of all exits of a chain, [exits, n, outputs].
        temperature: Divisor of the logits; one for all, or one for each of [...].
        loss: What a sample has: one label, several, or targets.
    """
    if loss == "regression":
        return agreements(logits)
    scaled = np.asarray(logits, np.float64) / np.expand_dims(temperature, (-2, -1))
    if loss == "multi-label":
        return np.asarray((1 / (1 + np.exp(-np.abs(scaled)))).mean(axis=-1))
    scaled -= scaled.max(axis=-1, keepdims=True)
    return np.asarray(1 / np.exp(scaled).sum(axis=-1))


def correctness(logits: Floats, truth: npt.NDArray[np.generic], *, loss: LossKind) -> npt.NDArray[np.float64]:
    """Return how far each answer is right, float64 [exits + 1, n].

    1 where it is the label; with several labels, the share of them that is right; of a regression, the share of the
    targets that the values are within `TOLERANCE` of.
    """
    if loss == "regression":
        return np.asarray((np.abs(logits - np.asarray(truth, np.float32)) <= TOLERANCE).mean(axis=-1))
    if loss == "multi-label":
        return np.asarray(((logits > 0) == (np.asarray(truth) > 0)).mean(axis=-1))
    return np.asarray((logits.argmax(axis=-1) == truth).astype(np.float64))


def fitted_temperature(logits: Floats, labels: npt.NDArray[np.generic], *, loss: LossKind = "single-label") -> float:
    """Return the temperature with the least negative log-likelihood (Guo et al., 2017); 1 of a regression.

    Args:
        logits: float [exits, n, classes], of exits that are to have one temperature.
        labels: int64 [n], or float32 [n, classes].
        loss: What a sample has: one label, several, or targets.
    """
    if loss == "regression":
        return 1.0
    wide = np.asarray(logits, np.float64)
    if loss == "multi-label":
        signed = wide * (1 - 2 * np.asarray(labels, np.float64))
        losses = [np.logaddexp(0, signed / temperature).mean() for temperature in TEMPERATURES]
    else:
        above = wide - wide.max(axis=-1, keepdims=True)
        own = np.take_along_axis(above, np.asarray(labels, np.int64)[None, :, None], axis=-1)[..., 0]
        losses = [
            (np.log(np.exp(above / temperature).sum(axis=-1)) - own / temperature).mean()
            for temperature in TEMPERATURES
        ]
    return float(TEMPERATURES[int(np.argmin(losses))])


def expected_calibration_error(confidences: Floats, right: Floats) -> float:
    """Return the mean distance between confidence and accuracy over 15 bins, weighted by samples; Guo et al., 2017.

    Args:
        confidences: float [n].
        right: float [n], 1 where the answer is right.
    """
    bins = np.minimum((np.asarray(confidences) * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    gaps = np.bincount(bins, np.asarray(confidences) - np.asarray(right), minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
