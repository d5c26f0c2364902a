"""The discriminant of a shared covariance, as a change of what a ridge head of ones and zeros answers.

Fisher's discriminant with the penalised covariance of samples around the means of their classes has the scores
μᵀA⁻¹x − ½ μᵀA⁻¹μ, where A is that covariance, as a sum, plus λI. Its directions are those of the ridge head with the
same λ, mixed by a small matrix (Hastie, Buja and Tibshirani, 1995), and so are the scores of samples left out: no
second system is solved.
"""

from dataclasses import dataclass

import numpy as np

from tuner.arrays import Array, Doubles, Labels, RowNumbers
from tuner.ridge.solve import LinearHead


@dataclass(frozen=True, slots=True, eq=False)
class Discriminant:
    """How a ridge head becomes a discriminant; features are less the mean of all, which scores 0 without samples.

    Attributes:
        outputs: Number of the head's outputs.
        classes: Those that have samples, int64 [k].
        sizes: What their samples count in all, float64 [k].
        means: Products of their means by the ridge head's inverse, float64 [k, k].
        turn: What mixes the directions, float64 [k, k].
        products: Products of their means by A⁻¹, float64 [k, k].
    """

    outputs: int
    classes: RowNumbers
    sizes: Doubles
    means: Doubles
    turn: Doubles
    products: Doubles

    @classmethod
    def of(cls, scores: Doubles, labels: Labels, weights: Doubles) -> "Discriminant":
        """Return the change of a ridge head.

        Args:
            scores: The head's scores of all its samples, float64 [n, outputs]; its targets are ones and zeros.
            labels: int64 [n].
            weights: What each sample counts, float64 [n]; the same for all of a class.
        """
        classes, places = np.unique(labels, return_inverse=True)
        hot = np.eye(len(classes))[places] * weights[:, None]
        sizes = hot.sum(axis=0)
        means = (hot / sizes).T @ ((scores[:, classes] - sizes / sizes.sum()) / sizes)
        turn = np.linalg.inv(np.eye(len(classes)) - sizes[:, None] * means)
        return cls(scores.shape[1], classes, sizes, means, turn, means @ turn)

    def head(self, ridge: LinearHead) -> LinearHead:
        """Return the discriminant as a linear layer; a class without samples scores 0."""
        weight, bias = np.zeros_like(ridge.weight), np.zeros_like(ridge.bias)
        weight[self.classes] = self.turn.T @ (ridge.weight[self.classes] / self.sizes[:, None])
        own = self.turn.T @ ((ridge.bias[self.classes] - self.sizes / self.sizes.sum()) / self.sizes)
        bias[self.classes] = own - np.diag(self.products) / 2
        return LinearHead(weight, bias)

    def left_out(self, scores: Doubles, leverages: Doubles, labels: Labels, weights: Array) -> Doubles:
        """Return the scores of the samples, each without it in its class's mean and in the covariance.

        Args:
            scores: As `of` takes them.
            leverages: Of the ridge head, float64 [n].
            labels: int64 [n].
            weights: What each sample counts, float64 [n].

        Returns:
            float64 [n, outputs].
        """
        rows, own = np.arange(len(labels)), np.searchsorted(self.classes, labels)
        at = (scores[:, self.classes] - self.sizes / self.sizes.sum()) / self.sizes  # of means and samples
        apart = at - self.means[own]  # of means and samples less their class's mean
        length = leverages - 1 / self.sizes.sum() - 2 * at[rows, own] + self.means[own, own]
        length = length + ((apart @ self.turn) * self.sizes * apart).sum(axis=1)
        on, off = at @ self.turn, apart @ self.turn
        counts = self.sizes[own] / weights
        share = 1 / np.maximum(counts - 1, 1)
        grown = weights * (1 + share)  # what its distance to the mean counts in the covariance
        factor = grown / np.maximum(1 - grown * length, 1e-9)
        whole, lengths = length + off[rows, own], np.tile(np.diag(self.products), (len(labels), 1))
        lengths[rows, own] += share * (share * length - 2 * off[rows, own])
        on[rows, own] -= share * whole
        off[rows, own] -= share * length
        on += factor[:, None] * off * whole[:, None] - (lengths + factor[:, None] * off**2) / 2
        on[rows, own] = np.where(counts > 1, on[rows, own], 0.0)
        result = np.zeros((len(labels), self.outputs))
        result[:, self.classes] = on
        return result
