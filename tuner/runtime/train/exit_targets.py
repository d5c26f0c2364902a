"""What exits learn: hard answers and softened ones, in one array."""

import numpy as np

from tuner.arrays import Floats, Labels
from tuner.plan.heads import HeadsPlan
from tuner.plan.info import MAP_DIMENSIONS
from tuner.ridge.sums import pooled
from tuner.targets import Targets


def exit_targets(heads: HeadsPlan, final: Floats, truth: Labels, *, kind: Targets) -> Floats:
    """Return the probabilities of the hard answer, then of the softened one, float32 [n, 2 · labels].

    Without classes these are values, and there is nothing to soften.

    Args:
        heads: Whether the hard answer is the truth or the final head's own, and the temperature of the softened one.
        final: The final head's logits, float32 [n, labels].
        truth: int64 [n], or float32 [n, labels].
        kind: What a sample's label is.
    """
    hard = kind.one_hot(truth if heads.supervised else kind.answers(final), final.shape[1])
    soft = kind.probabilities(final / heads.temperature)
    return np.concatenate([hard, soft], axis=1).astype(np.float32)


def regressed(heads: HeadsPlan, final: Floats, truth: Labels, *, kind: Targets) -> tuple[Floats, Labels]:
    """Return what exits in closed form are solved from, by the weights of the plan: one answer for each sample.

    Arguments are those of `exit_targets`.

    Returns:
        Probabilities, or values, to regress on, float32 [n, labels]; and the labels by which they are calibrated.
    """
    both = exit_targets(heads, final, truth, kind=kind)
    outputs, weight = final.shape[1], heads.supervised + heads.pseudo
    mixed = (weight * both[:, :outputs] + heads.distilled * both[:, outputs:]) / (weight + heads.distilled)
    return mixed.astype(np.float32), truth if heads.supervised else kind.answers(final)


def linear_features(values: Floats) -> Floats:
    """Return what a linear exit reads of a batch: the mean of each channel of maps, all values of anything else."""
    return pooled(values) if values.ndim == MAP_DIMENSIONS + 1 else values.reshape(len(values), -1)


def entropy(heads: HeadsPlan, targets: Floats, *, kind: Targets) -> float:
    """Return what no exit can take off its mean loss: the weighted entropy of the softened answers; 0 of values.

    `targets` are as `exit_targets` returns them.
    """
    each = kind.entropies(targets[:, targets.shape[1] // 2 :].astype(np.float64))
    return float(heads.distilled * heads.temperature**2 * each.mean())
