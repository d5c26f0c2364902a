"""The head of a model that knows some classes and learns a user's: three heads, folded into one linear layer.

The given head answers for what it knows, a ridge head for the classes of the local samples, and a second ridge head,
the gate, says how much a sample looks like the local ones. With old the given head's logits, r the local scores and g
the gate's, the logits of a class are

    t · old + [class is a local one] · (s · r + k · g + c + p · log prior)

which is linear in the features: one layer, of the shape of the given head. The four numbers t, s, k and c are those of
the largest likelihood on the samples themselves, each answered by the heads without it (`RidgeHead.left_out`): so the
two domains' logits are comparable, and the softmax is calibrated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.errors import TrainingError
from tuner.ridge.calibrate import mixture
from tuner.ridge.solve import LinearHead, class_means, log_odds, log_prior, solve, spread
from tuner.ridge.sums import Sums, one_hot

#: Most samples of a domain that the four numbers are fitted on, at equal distances; labels, where there may be several.
MOST_FITTED, MOST_CHOICES = 2000, 200_000
#: Factor of a hard gate's score: larger than any difference of logits.
HARD = 1e4
SCORES, GATES = ("ridge", "means"), ("soft", "hard", "none")


@dataclass(frozen=True, slots=True)
class UnionSettings:
    """How a union head is solved.

    Attributes:
        ridge: λ in samples: it weighs as much as so many samples do.
        prior: Factor p of the log prior of local classes.
        local_weight: What all local samples count where those of the global data count one.
        scores: What scores local classes: a ``ridge`` head, or class ``means``.
        gate: ``soft`` weighs the gate by likelihood, ``hard`` lets it decide alone, ``none`` does without.
    """

    ridge: float = 100.0
    prior: float = 0.0
    local_weight: float = 1.0
    scores: str = "ridge"
    gate: str = "soft"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Return settings by name; a TrainingError says which is unknown, or has a value that means nothing."""
        unknown = sorted(set(settings) - {one.name for one in fields(cls)})
        if unknown:
            raise TrainingError(f"a head in closed form has no setting {unknown[0]!r}: update tuner")
        result = cls(**settings)
        numbers = (result.ridge, result.local_weight)
        if min(numbers) <= 0 or not np.isfinite((*numbers, result.prior)).all():
            raise TrainingError(f"ridge and local_weight must be above 0, got {numbers}")
        if result.scores not in SCORES or result.gate not in GATES:
            raise TrainingError(f"scores must be one of {SCORES}, gate of {GATES}, got {result.scores}, {result.gate}")
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Samples of one domain with their exact sums.

    Attributes:
        codes: float64 [n, features]; see `tuner.ridge.sums.coded`.
        labels: int64 [n], or float64 [n, outputs] of ones and zeros with several labels a sample.
        sums: Of these samples, with the labels as targets.
    """

    codes: Doubles
    labels: Labels
    sums: Sums

    @classmethod
    def empty(cls, features: int, outputs: int, step: float, *, multi: bool = False) -> Self:
        """Return a domain without samples, of one label each or of several."""
        labels: Labels = np.zeros((0, outputs)) if multi else np.zeros(0, np.int64)
        return cls(np.zeros((0, features)), labels, Sums.empty(features, outputs, step))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Doubles:
        """Features as the codes have them, float64 [n, features]."""
        return self.codes * self.sums.step

    def added(self, codes: Doubles, labels: Labels) -> "Domain":
        """Return the domain with further samples: its sums are updated, not taken anew."""
        sums = self.sums.added(codes, one_hot(labels, self.sums.cross.shape[1]))
        return Domain(np.concatenate([self.codes, codes]), np.concatenate([self.labels, labels]), sums)

    def without(self, rows: Array) -> "Domain":
        """Return the domain as if the samples in some rows, int64 [n], had never been there: sums are down-dated."""
        sums = self.sums.removed(self.codes[rows], one_hot(self.labels[rows], self.sums.cross.shape[1]))
        return Domain(np.delete(self.codes, rows, 0), np.delete(self.labels, rows, 0), sums)


@dataclass(frozen=True, slots=True, eq=False)
class UnionHead:
    """A solved union head.

    Attributes:
        head: One linear layer, of the shape of the given head.
        numbers: t, s, k and c.
        left_out: Logits of the local samples, each by the heads without it, float64 [local, outputs].
    """

    head: LinearHead
    numbers: tuple[float, float, float, float]
    left_out: Doubles


def union_head(given: LinearHead, local: Domain, known: Domain, settings: UnionSettings) -> UnionHead:
    """Solve a union head.

    Args:
        given: The model's head; what it does not know has zeros.
        local: The user's samples.
        known: Samples of what the model knows; without any there is no gate.
        settings: How it is solved.

    Raises:
        TrainingError: There are no local samples.
    """
    if not len(local):
        raise TrainingError("a head in closed form needs local samples, but there are none: give some")
    scores, local_scores = _scored(local, settings)
    gate, local_gate, known_gate = _gated(local, known, settings)
    counts, multi = local.sums.cross[-1], local.labels.ndim > 1
    is_local = counts > 0  # a class, by whether it occurs
    prior = np.where(is_local, settings.prior * (log_odds(counts, len(local)) if multi else log_prior(counts)), 0.0)
    most = min(MOST_FITTED, MOST_CHOICES // len(counts)) if multi else MOST_FITTED
    own, others = (np.arange(0, len(one), -(-len(one) // most) or 1) for one in (local, known))
    features = np.concatenate([local.features[own], known.features[others]])
    on = np.concatenate([local_scores[own], scores.scores(known.features[others])]) * is_local
    gates = np.concatenate([local_gate[own], known_gate[others]])[:, None] * is_local
    constant = np.broadcast_to(is_local.astype(float), on.shape)
    labels = np.concatenate([local.labels[own], known.labels[others]])
    weights = np.repeat([settings.local_weight / len(own), 1 / max(1, len(others))], [len(own), len(others)])
    numbers = np.array([1.0, 1.0, HARD if settings.gate == "hard" else 0.0, 0.0])
    if not len(known):
        fitted = [0, 1]  # an offset that nothing holds back would let local classes always win
    elif gate is None:
        fitted = [0, 1, 3]
    else:
        fitted = [0, 1] if settings.gate == "hard" else [0, 1, 2, 3]
    parts = np.stack([given.scores(features), on, gates, constant])
    used, offset = parts[fitted], prior + numbers[2] * gates
    if multi:  # each label is a choice of two
        used, offset = _or_not(used), _or_not(offset)
        labels, weights = 1 - (labels.ravel() > 0), np.repeat(weights, len(counts))
    numbers[fitted] = mixture(used, offset, labels, weights, numbers[fitted])
    t, s, k, c = map(float, numbers if gate is not None else numbers * [1, 1, 0, 1])
    weight, bias = t * given.weight, t * given.bias
    weight[is_local] += s * scores.weight[is_local] + (0 if gate is None else k * gate.weight)
    bias[is_local] += (s * scores.bias + c + prior)[is_local] + (0 if gate is None else k * gate.bias)
    of_local = s * local_scores + k * local_gate[:, None] + c
    left_out = t * given.scores(local.features) + np.where(is_local, of_local, 0.0) + prior
    return UnionHead(LinearHead(weight, bias), (t, s, k, c), left_out)


def _or_not(logits: Doubles) -> Doubles:
    """Return logits [..., n, outputs] as [..., n · outputs, 2]: of a label, and of its absence, which are zeros."""
    flat = logits.reshape(*logits.shape[:-2], -1)
    return np.stack([flat, np.zeros_like(flat)], axis=-1)


def _scored(local: Domain, settings: UnionSettings) -> tuple[LinearHead, Doubles]:
    """Return the head of the local classes, and its scores of the local samples, each left out."""
    if settings.scores == "means":
        means = class_means(local.sums)
        return means.head, means.left_out(local.features, local.labels)
    solved = solve(local.sums, settings.ridge * (spread(local.sums) or 1.0))
    targets = one_hot(local.labels, local.sums.cross.shape[1])
    return solved.head, solved.left_out(local.features, targets)


def _gated(local: Domain, known: Domain, settings: UnionSettings) -> tuple[LinearHead | None, Doubles, Doubles]:
    """Return the gate, above 0 for local samples, and its scores of both domains' samples, each left out."""
    if not len(known) or settings.gate == "none":
        return None, np.zeros(len(local)), np.zeros(len(known))
    sizes, total = (len(local), len(known)), len(local) + len(known)
    share = settings.local_weight / (1 + settings.local_weight)
    weights = share * total / len(local), (1 - share) * total / len(known)
    ours, theirs = (
        Sums(domain.sums.gram, domain.sums.gram[:, -1:] * sign, domain.sums.step).weighted(weight)
        for domain, sign, weight in zip((local, known), (1, -1), weights, strict=True)
    )
    sums = ours + theirs
    solved = solve(sums, settings.ridge * (spread(sums) or 1.0))
    features, signs = np.concatenate([local.features, known.features]), np.repeat([1, -1], sizes)
    left = solved.left_out(features, signs[:, None], np.repeat(weights, sizes))[:, 0]
    head = LinearHead(solved.head.weight[0], solved.head.bias)
    return head, left[: len(local)], left[len(local) :]
