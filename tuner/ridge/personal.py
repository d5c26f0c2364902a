"""The head of a user: ridge regression on all samples, with the user's own class prior and a temperature."""

import numpy as np

from tuner.arrays import Array, Labels, RowNumbers
from tuner.ridge.calibrate import mixture
from tuner.ridge.solve import LinearHead, log_prior, solve, spread
from tuner.ridge.sums import Sums, coded, one_hot, step_of

#: Most of the user's samples that temperature and prior are fitted on, at equal distances.
MOST_FITTED = 2000


def personal_head(
    features: Array, targets: Array, labels: Labels, own: RowNumbers, ridge: float, *, multi: bool = False
) -> LinearHead:
    """Return a linear head whose softmax is calibrated for a user; of several labels a sample, its sigmoid.

    Its logits are a · ridge score + b · log prior, where the prior is that of the user's classes. Both numbers are
    those of the largest likelihood on the user's samples, each answered by the head that the other samples give
    (`RidgeHead.left_out`), with a prior of the others. Of several labels, b is an offset of all labels instead.

    Args:
        features: float [n, features].
        targets: What to answer, float [n, outputs]: probabilities of the labels.
        labels: int64 [n], or float32 [n, outputs] with several labels a sample.
        own: Row numbers of the user's samples; at least one.
        ridge: Penalty in samples: it weighs as much as so many samples do.
        multi: Whether a sample may have several labels.

    Raises:
        TrainingError: Features are not finite, or there are too many of a sample.
    """
    outputs, step = targets.shape[1], step_of(features)
    codes = coded(features, step)
    sums = Sums.empty(codes.shape[1], outputs, step).added(codes, targets)
    solved = solve(sums, ridge * (spread(sums) or 1.0))
    rows = own[:: -(-len(own) // MOST_FITTED)]
    left = solved.left_out(codes[rows] * step, targets[rows])
    if multi:
        scores = np.stack([left.ravel(), np.ones(left.size)])
        parts, truth = np.stack([scores, np.zeros_like(scores)], axis=2), 1 - (labels[rows].ravel() > 0)
        prior = np.ones(outputs)
    else:
        truth, counts = labels[rows], np.bincount(labels[own], minlength=outputs)
        without = np.stack([log_prior(row) for row in counts - one_hot(truth, outputs)])
        parts, prior = np.stack([left, without]), log_prior(counts)
    scale, share = mixture(parts, np.zeros(parts.shape[2]), truth, np.ones(parts.shape[1]), np.array([1.0, 0.0]))
    return LinearHead(scale * solved.head.weight, scale * solved.head.bias + share * prior)
