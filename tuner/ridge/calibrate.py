"""Probabilities of scores by maximum likelihood: few numbers, convex, solved by Newton's method."""

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.targets.strata import occurring_choices

#: Steps of Newton's method: it needs about ten.
STEPS = 50
#: Pull of the numbers to their start, over the mean likelihood: keeps them finite where scores separate all samples.
PULL = 1e-4
#: Shortest part of a step that is tried, and the least change of the mean likelihood that is worth another step.
SHORTEST, LEAST = 1e-4, 1e-9


def mixture(parts: Array, offset: Array, labels: Array, weights: Array, start: Array) -> Doubles:
    """Return the numbers θ by which logits `offset + Σ θₖ partsₖ` give the labels the largest likelihood.

    Args:
        parts: float64 [k, n, outputs]. Those after the first may be about few outputs: the others, where they are zero
            for all samples, cost nothing.
        offset: float64 [outputs] or [n, outputs], added as it is.
        labels: int64 [n].
        weights: What each sample counts, float64 [n]; scaled to a sum of one.
        start: float64 [k], which θ is weakly pulled to.

    Returns:
        float64 [k]; without samples `start`.
    """
    if not len(labels):
        return np.asarray(start, float)
    size = np.sqrt(np.einsum("kno,kno->k", parts, parts) / parts[0].size) + np.finfo(float).tiny
    parts, start = parts / size[:, None, None], np.asarray(start, float) * size  # pulled alike, whatever their scales
    some = np.flatnonzero(parts[1:].any(axis=(0, 1)))
    first, narrow = parts[0], parts[:, :, some]
    rows, share = np.arange(len(labels)), np.asarray(weights, float) / np.sum(weights)
    right = parts[:, rows, labels]  # [k, n]

    def loss_at(values: Doubles) -> tuple[float, Doubles]:
        logits = offset + values[0] * first
        logits[:, some] += np.tensordot(values[1:], narrow[1:], 1)
        logits -= logits.max(axis=1, keepdims=True)
        exponents = np.exp(logits)
        total = exponents.sum(axis=1, keepdims=True)
        likelihood = share @ (logits[rows, labels] - np.log(total[:, 0]))
        return float(PULL / 2 * ((values - start) ** 2).sum() - likelihood), exponents / total

    theta = start
    loss, probabilities = loss_at(theta)
    for _ in range(STEPS):
        weighted = probabilities * share[:, None]
        expected = np.einsum("kno,no->kn", narrow, probabilities[:, some])
        expected[0] = np.einsum("no,no->n", first, probabilities)
        gradient = (expected - right) @ share + PULL * (theta - start)
        second = np.tensordot(narrow * weighted[:, some], narrow, ((1, 2), (1, 2)))
        second[0, 0] = np.einsum("no,no,no->", first, first, weighted)
        hessian = second - (expected * share) @ expected.T + PULL * np.eye(len(theta))
        move, length = np.linalg.solve(hessian, gradient), 1.0
        after, changed = loss_at(theta - move)
        while after > loss and length > SHORTEST:
            length /= 2
            after, changed = loss_at(theta - length * move)
        if loss - after < LEAST:
            break
        theta, loss, probabilities = theta - length * move, after, changed
    result: Doubles = theta / size
    return result


def least_loss(scores: Doubles, labels: Labels, weights: Array) -> float:
    """Return the mean loss of samples at the best scale of their scores, among the classes that occur.

    Args:
        scores: float64 [n, outputs].
        labels: int64 [n], or [n, outputs] of ones and zeros, each a choice of two.
        weights: What each sample counts, float64 [n].
    """
    labels, weights, parts = occurring_choices(labels, weights, scores)
    numbers = mixture(parts, np.zeros(parts.shape[2]), labels, weights, np.array([1.0, 0.0])[: len(parts)])
    logits = np.tensordot(numbers, parts, 1)
    logits -= logits.max(axis=1, keepdims=True)
    surprise = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
    return float(np.average(surprise, weights=weights))
