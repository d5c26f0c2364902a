"""The head of a user: ridge regression on all samples, with the user's own class prior and a temperature.

Or one with a gate, that answers the user's classes and is unsure of what the model knows.
"""

from typing import NamedTuple

import numpy as np

from tuner.arrays import Array, Doubles, Labels, RowNumbers
from tuner.ridge.calibrate import mixture
from tuner.ridge.choice import chosen
from tuner.ridge.solve import LinearHead, solve, spread
from tuner.ridge.sums import Sums, coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.targets import SINGLE_LABEL, Targets
from tuner.targets.strata import log_prior, row_weights

#: Most of the user's samples that temperature and prior are fitted on, at equal distances.
MOST_FITTED = 2000


class PersonalHead(NamedTuple):
    """The head of a user, and what it would have answered to samples that it had not seen.

    Attributes:
        head: Solved from all samples.
        unseen: Logits of the user's samples, each by the head that is solved without its fold, float64 [own, outputs].
        known: Of a head with a gate, logits of the other samples, each by the head without it, float64 [others,
            outputs].
    """

    head: LinearHead
    unseen: Doubles
    known: Doubles | None = None


def personal_head(
    features: Array,
    targets: Array,
    labels: Labels,
    own: RowNumbers,
    folds: RowNumbers,
    ridge: float,
    *,
    seen_as: Array | None = None,
    kind: Targets = SINGLE_LABEL,
    given: Sums | None = None,
) -> PersonalHead:
    """Return a linear head whose probabilities are calibrated for a user.

    In the ridge each of the user's classes counts as much as any other (`tuner.targets.strata.row_weights`).

    Its logits are a · ridge score + b · log prior, where the prior is that of the user's classes. Both numbers are
    those of the largest likelihood on the user's samples, each answered by the head and with the prior that the other
    folds give. With several labels a sample, b is an offset of all labels instead; of numbers, a is 1 and b is 0.

    Args:
        features: float [n, features].
        targets: What to answer, float [n, outputs]: probabilities of the labels, or values.
        labels: As the task has them.
        own: Row numbers of the user's samples; at least one.
        folds: Fold of each of these, int64 [own].
        ridge: Penalty in samples: it weighs as much as so many samples do.
        seen_as: Features of the user's samples as they are when they are answered, float [own, features]; those that
            are learned from where it is None.
        kind: What a sample's label is.
        given: Sums of further samples, of the same features and targets, each with the weight that it shall count.

    Raises:
        TrainingError: Features are not finite, or there are too many of a sample.
    """
    outputs, step = targets.shape[1], max(step_of(features), given.step if given is not None else 0.0)
    codes = coded(features, step)
    begun = given.rescaled(step) if given is not None else Sums.empty(codes.shape[1], outputs, step)
    weights = np.ones(len(labels))
    weights[own] = row_weights(labels[own])
    sums = begun.added(codes, targets, weights)
    penalty = ridge * (spread(sums) or 1.0)
    head, truth = solve(sums, penalty).head, labels[own]
    judged = features[own] if seen_as is None else seen_as
    scores, priors = np.zeros((len(own), outputs)), np.empty((len(own), outputs))
    prior = log_prior(truth, outputs)
    for fold in np.unique(folds):
        inside = folds == fold
        rest = sums.removed(codes[own[inside]], targets[own[inside]], weights[own[inside]])
        if rest.count:
            scores[inside] = solve(rest, penalty).head.scores(judged[inside])
        priors[inside] = log_prior(truth[~inside], outputs)
    rows = slice(None, None, -(-len(own) // MOST_FITTED))
    parts = np.stack([scores[rows], priors[rows]])
    answers, counted, parts = kind.choices(truth[rows], np.ones(parts.shape[1]), parts)
    scale, share = mixture(parts, np.zeros(parts.shape[2]), answers, counted, np.array([1.0, 0.0]))
    scale = max(scale, 0.0)  # scores that are worse than none do not answer the other way round
    calibrated = LinearHead(scale * head.weight, scale * head.bias + share * prior)
    return PersonalHead(calibrated, scale * scores + share * priors)


def gated_head(
    features: Array, labels: Labels, own: RowNumbers, folds: RowNumbers, outputs: int, *, seen_as: Array | None = None
) -> PersonalHead:
    """Return a union head (`tuner.ridge.union`) without a given one: the other samples are those to be unsure of.

    What it is solved with is chosen by leave-one-out (`tuner.ridge.choice`). Arguments are those of `personal_head`.

    Args:
        features: float [n, features].
        labels: int64 [n], or of several labels a sample float [n, outputs].
        own: Row numbers of the user's samples; at least one.
        folds: Fold of each of these, int64 [own].
        outputs: Number of the head's outputs.
        seen_as: Features of the user's samples as they are when they are answered; see `personal_head`.
    """
    step = step_of(features)
    codes, others = coded(features, step), np.setdiff1d(np.arange(len(labels)), own)
    ours, theirs = (Domain(codes[rows], labels[rows], outputs, step) for rows in (own, others))
    nothing = LinearHead(np.zeros((outputs, codes.shape[1])), np.zeros(outputs))
    settings = chosen(ours, theirs, UnionSettings())
    solved = union_head(nothing, ours, theirs, settings)
    judged, unseen = features[own] if seen_as is None else seen_as, np.zeros((len(own), outputs))
    for fold in np.unique(folds):
        inside = folds == fold
        if not inside.all():
            rest = ours.without(np.flatnonzero(inside))
            unseen[inside] = union_head(nothing, rest, theirs, settings).head.scores(judged[inside])
    return PersonalHead(solved.head, unseen, solved.known_left_out)
