"""What exits learn: hard answers and softened ones, in one array. Of a regression both are values."""

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.metrics import LossKind
from tuner.plan.heads import HeadsPlan
from tuner.plan.info import MAP_DIMENSIONS
from tuner.ridge.sums import pooled
from tuner.runtime.infer.chain import probabilities


def exit_targets(heads: HeadsPlan, final: Floats, truth: Labels, *, loss: LossKind) -> Floats:
    """Return the probabilities of the hard answer, then of the softened one, float32 [n, 2 · labels].

    Of a regression these are values, and there is nothing to soften.

    Args:
        heads: Whether the hard answer is the truth or the final head's own, and the temperature of the softened one.
        final: The final head's logits, float32 [n, labels].
        truth: int64 [n], or float32 [n, labels].
        loss: What a sample has: one label, several, or targets.
    """
    hard = truth if heads.supervised else answers_of(final, loss)
    if loss == "single-label":
        hard = np.eye(final.shape[1], dtype=np.float32)[hard]
    soft = probabilities(final / heads.temperature, loss=loss)
    return np.concatenate([hard, soft], axis=1).astype(np.float32)


def answers_of(logits: Floats, loss: LossKind) -> Labels:
    """Return what logits [..., labels] answer, as labels have it: int64 [...], or float32 [..., labels]."""
    if loss == "regression":
        return logits
    return np.asarray(logits.argmax(axis=-1) if loss == "single-label" else (logits > 0).astype(np.float32))


def regressed(heads: HeadsPlan, final: Floats, truth: Labels, *, loss: LossKind) -> tuple[Floats, Labels]:
    """Return what exits in closed form are solved from, by the weights of the plan: one answer for each sample.

    Args:
        heads: The weights.
        final: The final head's logits, float32 [n, labels].
        truth: int64 [n], or float32 [n, labels].
        loss: What a sample has: one label, several, or targets.

    Returns:
        Probabilities, or values, to regress on, float32 [n, labels]; and the labels by which they are calibrated.
    """
    both = exit_targets(heads, final, truth, loss=loss)
    outputs, weight = final.shape[1], heads.supervised + heads.pseudo
    mixed = (weight * both[:, :outputs] + heads.distilled * both[:, outputs:]) / (weight + heads.distilled)
    return mixed.astype(np.float32), truth if heads.supervised else answers_of(final, loss)


def linear_features(values: Floats) -> Floats:
    """Return what a linear exit reads of a batch: the mean of each channel of maps, all values of anything else."""
    return pooled(values) if values.ndim == MAP_DIMENSIONS + 1 else values.reshape(len(values), -1)


def entropy(heads: HeadsPlan, targets: Floats, *, loss: LossKind) -> float:
    """Return what no exit can take off its mean loss: the weighted entropy of the softened answers; 0 of values.

    Args:
        heads: Weight and temperature of the softened answers.
        targets: As `exit_targets` returns them.
        loss: What a sample has: one label, several, or targets.
    """
    if loss == "regression":
        return 0.0
    soft = targets[:, targets.shape[1] // 2 :].astype(np.float64)
    own = -soft * np.log(np.maximum(soft, 1e-300))
    rest = -(1 - soft) * np.log(np.maximum(1 - soft, 1e-300))
    each = (own + rest).mean(axis=1) if loss == "multi-label" else own.sum(axis=1)
    return float(heads.distilled * heads.temperature**2 * each.mean())
