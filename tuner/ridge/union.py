"""The head of a model that knows some classes and learns a user's: three heads, folded into one linear layer.

The given head answers for what it knows, a ridge head for the classes of the local samples, and a second ridge head,
the gate, says how much a sample looks like the local ones. With old the given head's logits, r the local scores and g
the gate's, the logits of a class are

    t · old + [class is a local one] · (s · r + k · g + c)

which is linear in the features: one layer, of the shape of the given head. The four numbers t, s, k and c are those of
the largest likelihood on the samples themselves, each answered by the heads without it (`RidgeHead.left_out`): so the
two domains' logits are comparable, and the softmax is calibrated.

A *joint* head is solved from the samples of both domains, and scores every class that has any. It tells local classes
from old ones by itself, so that it has no gate: t · old + s · r + [class is a local one] · c.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from tuner.arrays import Array, Doubles, Labels
from tuner.errors import TrainingError
from tuner.ridge.calibrate import mixture
from tuner.ridge.discriminant import Discriminant
from tuner.ridge.solve import LinearHead, class_means, left_out, solve, spread
from tuner.ridge.sums import Sums
from tuner.targets import SINGLE_LABEL, Targets
from tuner.targets.strata import as_choices, class_counts, one_hot, row_weights

#: Most samples of a domain that the four numbers are fitted on, at equal distances; labels, where there may be several.
MOST_FITTED, MOST_CHOICES = 2000, 200_000
#: Factor of a hard gate's score: larger than any difference of logits.
HARD = 1e4
SCORES, GATES = ("ridge", "discriminant", "means", "joint"), ("soft", "hard", "none")


@dataclass(frozen=True, slots=True)
class UnionSettings:
    """How a union head is solved.

    Attributes:
        ridge: λ in samples: it weighs as much as so many samples do.
        gate_ridge: The same of the gate.
        local_weight: What all local samples count where those of the global data count one.
        scores: What scores local classes: a ``ridge`` head, a shared-covariance ``discriminant``, or class ``means``;
            or a ``joint`` ridge head, which scores those of both domains, and takes no gate.
        gate: ``soft`` weighs the gate by likelihood, ``hard`` lets it decide alone, ``none`` does without.
    """

    ridge: float = 100.0
    gate_ridge: float = 100.0
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
        numbers = (result.ridge, result.gate_ridge, result.local_weight)
        if min(numbers) <= 0 or not np.isfinite(numbers).all():
            raise TrainingError(f"ridge, gate_ridge and local_weight must be above 0, got {numbers}")
        if result.scores not in SCORES or result.gate not in GATES:
            raise TrainingError(f"scores must be one of {SCORES}, gate of {GATES}, got {result.scores}, {result.gate}")
        return result

    @property
    def text(self) -> str:
        """What is solved, for people."""
        kind = {
            "ridge": f"a ridge head of {self.ridge:,.0f} samples",
            "discriminant": f"a discriminant of a shared covariance, shrunk by {self.ridge:,.0f} samples,",
            "means": "a head of class means",
            "joint": f"a joint ridge head of {self.ridge:,.0f} samples",
        }[self.scores]
        return kind.rstrip(",") if self.gate == "none" else f"{kind} with a gate of {self.gate_ridge:,.0f}"


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Samples of one domain, of which each class counts as much as any other.

    Attributes:
        codes: Whole numbers of any type [n, features]; see `tuner.ridge.sums.coded`.
        labels: int64 [n], or float64 [n, outputs] of ones and zeros with several labels a sample.
        outputs: Number of the head's outputs.
        step: What one code is worth.
    """

    codes: Array
    labels: Labels
    outputs: int
    step: float

    @classmethod
    def empty(cls, features: int, outputs: int, step: float, targets: Targets = SINGLE_LABEL) -> Self:
        """Return a domain without samples, of such labels."""
        return cls(np.zeros((0, features)), targets.blank(0, outputs), outputs, step)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> Doubles:
        """Features as the codes have them, float64 [n, features]."""
        return self.codes * self.step

    @property
    def weights(self) -> Doubles:
        """What each sample counts, float64 [n]: `tuner.targets.strata.row_weights`."""
        return row_weights(self.labels)

    def sums(self) -> Sums:
        """Return the weighted sums, the labels being targets: exact, so that what was removed has left no bit."""
        empty = Sums.empty(self.codes.shape[1], self.outputs, self.step)
        return empty.added(self.codes, one_hot(self.labels, self.outputs), self.weights)

    def added(self, codes: Array, labels: Labels) -> "Domain":
        """Return the domain with further samples."""
        joined = np.concatenate([self.codes, codes]), np.concatenate([self.labels, labels])
        return Domain(*joined, self.outputs, self.step)

    def without(self, rows: Array) -> "Domain":
        """Return the domain as if the samples in some rows, int64 [n], had never been there."""
        return Domain(np.delete(self.codes, rows, 0), np.delete(self.labels, rows, 0), self.outputs, self.step)


@dataclass(frozen=True, slots=True, eq=False)
class UnionHead:
    """A solved union head.

    Attributes:
        head: One linear layer, of the shape of the given head.
        numbers: t, s, k and c.
        left_out: Logits of the local samples, each by the heads without it, float64 [local, outputs].
        known_left_out: The same of the known samples, float64 [known, outputs].
    """

    head: LinearHead
    numbers: tuple[float, float, float, float]
    left_out: Doubles
    known_left_out: Doubles


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
    scores, local_scores, known_scores = _scored(local, known, settings)
    gate, local_gate, known_gate = gate_head(local, known, settings)
    counts = class_counts(local.labels, local.outputs)
    is_local = counts > 0  # a class, by whether it occurs
    is_scored = is_local | (settings.scores == "joint") & (class_counts(known.labels, local.outputs) > 0)
    most = min(MOST_FITTED, MOST_CHOICES // local.labels[0].size)
    own, others = (np.arange(0, len(one), -(-len(one) // most) or 1) for one in (local, known))
    old, known_old = given.scores(local.features), given.scores(known.features)
    on = np.concatenate([local_scores[own], known_scores[others]]) * is_scored
    gates = np.concatenate([local_gate[own], known_gate[others]])[:, None] * is_local
    labels = np.concatenate([local.labels[own], known.labels[others]])
    weights = np.repeat([settings.local_weight / len(own), 1 / max(1, len(others))], [len(own), len(others)])
    numbers = np.array([1.0, 1.0, HARD if settings.gate == "hard" else 0.0, 0.0])
    if not len(known):
        fitted = [0, 1]  # an offset that nothing holds back would let local classes always win
    elif gate is None:
        fitted = [0, 1, 3]
    else:
        fitted = [0, 1] if settings.gate == "hard" else [0, 1, 2, 3]
    parts = (np.concatenate([old[own], known_old[others]]), on, gates, np.broadcast_to(1.0 * is_local, on.shape))
    used, offset = np.stack([parts[at] for at in fitted]), numbers[2] * gates
    del parts, on, gates  # each may take as much memory as the model
    labels, weights, used, offset = as_choices(labels, weights, used, offset)
    numbers[fitted] = mixture(used, offset, labels, weights, numbers[fitted])
    numbers[1] = max(0.0, numbers[1])  # scores that tell nothing lean away from the sample that is left out
    t, s, k, c = map(float, numbers if gate is not None else numbers * [1, 1, 0, 1])
    weight, bias = t * given.weight, t * given.bias
    weight[is_scored] += s * scores.weight[is_scored]
    bias[is_scored] += s * scores.bias[is_scored]
    weight[is_local] += 0 if gate is None else k * gate.weight
    bias[is_local] += c + (0 if gate is None else k * gate.bias)

    def answers(old: Doubles, scores: Doubles, gate: Doubles) -> Doubles:
        logits = t * old + np.where(is_scored, s * scores, 0.0)
        return logits + np.where(is_local, k * gate[:, None] + c, 0.0)

    own_answers = answers(old, local_scores, local_gate)
    known_answers = answers(known_old, known_scores, known_gate)
    return UnionHead(LinearHead(weight, bias), (t, s, k, c), own_answers, known_answers)


def _scored(local: Domain, known: Domain, settings: UnionSettings) -> tuple[LinearHead, Doubles, Doubles]:
    """Return the head that scores, and its scores of both domains' samples: those that it is solved from left out."""
    sums, weights = local.sums(), local.weights
    if settings.scores == "joint":
        ours, theirs = domain_scales(local, known, settings.local_weight)
        both = sums.weighted(ours) + known.sums().weighted(theirs)
        solved = solve(both, settings.ridge * (spread(both) or 1.0))
        rows = both_rows(local, known, settings.local_weight)
        left = solved.left_out(rows[0], one_hot(rows[1], local.outputs), rows[2])
        return solved.head, left[: len(local)], left[len(local) :]
    if settings.scores == "means":
        means = class_means(sums)
        head, left = means.head, means.left_out(local.features, local.labels, weights)
    else:
        solved = solve(sums, settings.ridge * (spread(sums) or 1.0))
        del sums  # which may take as much memory as the model
        scores, leverages = solved.head.scores(local.features), solved.leverages(local.codes, local.step)
        head, left = solved.head, left_out(scores, leverages, one_hot(local.labels, local.outputs), weights)
        if settings.scores == "discriminant":
            change = Discriminant.of(scores, local.labels, weights)
            head, left = change.head(head), change.left_out(scores, leverages, local.labels, weights)
    return head, left, head.scores(known.features)


def both_rows(local: Domain, known: Domain, local_weight: float) -> tuple[Doubles, Labels, Doubles]:
    """Return the samples of both domains, local ones first: features, labels, and what each counts, float64 [n]."""
    parts = (local, known)
    weights = [one.weights * scale for one, scale in zip(parts, domain_scales(local, known, local_weight), strict=True)]
    features, labels = [one.features for one in parts], [one.labels for one in parts]
    return np.concatenate(features), np.concatenate(labels), np.concatenate(weights)


def gate_targets(local: Domain, known: Domain) -> Doubles:
    """Return what a gate is solved for, 1 for local samples and −1 for known ones, float64 [n, 1]."""
    return np.repeat([1.0, -1.0], [len(local), len(known)])[:, None]


def domain_scales(local: Domain, known: Domain, local_weight: float) -> tuple[float, float]:
    """Return the factors of both domains' weights by which local ones count `local_weight` times the known ones."""
    if not len(known):
        return 1.0, 1.0
    share, total = local_weight / (1 + local_weight), len(local) + len(known)
    return share * total / float(local.weights.sum()), (1 - share) * total / float(known.weights.sum())


def gate_head(local: Domain, known: Domain, settings: UnionSettings) -> tuple[LinearHead | None, Doubles, Doubles]:
    """Return the gate, above 0 for local samples, and its scores of both domains' samples, each left out.

    With the setting `gate` of ``none``, or without known samples, it is None.
    """
    if not len(known) or settings.gate == "none" or settings.scores == "joint":
        return None, np.zeros(len(local)), np.zeros(len(known))
    ours, theirs = domain_scales(local, known, settings.local_weight)
    sums = gate_sums(local, known, settings.local_weight)
    solved = solve(sums, settings.gate_ridge * (spread(sums) or 1.0))
    del sums
    weights = np.concatenate([local.weights * ours, known.weights * theirs])
    both = local.added(known.codes, known.labels)
    scores, leverages = solved.head.scores(both.features), solved.leverages(both.codes, both.step)
    left = left_out(scores, leverages, gate_targets(local, known), weights)[:, 0]
    head = LinearHead(solved.head.weight[0], solved.head.bias)
    return head, left[: len(local)], left[len(local) :]


def gate_sums(local: Domain, known: Domain, local_weight: float) -> Sums:
    """Return the sums that a gate is solved from: both domains' samples, with `gate_targets`."""
    ours, theirs = domain_scales(local, known, local_weight)
    return _signed(local.sums(), 1).weighted(ours) + _signed(known.sums(), -1).weighted(theirs)


def _signed(sums: Sums, sign: int) -> Sums:
    return replace(sums, cross=sums.gram[:, -1:] * sign)


def regression_head(
    given: LinearHead, local: Domain, known: Domain, ridge: float, local_weight: float = 1.0
) -> tuple[LinearHead, Doubles]:
    """Return the head of numbers, pulled to the given head, and its outputs of the local samples, each left out.

    What no sample speaks against stays as it was.

    Args:
        given: The model's head.
        local: The user's samples, with their targets as labels; at least one.
        known: Samples of the global data; none where there are none.
        ridge: λ in samples: it weighs as much as so many samples do.
        local_weight: What all local samples count where those of the global data count one.
    """
    ours, theirs = domain_scales(local, known, local_weight)
    sums = local.sums().weighted(ours) + known.sums().weighted(theirs)
    solved = solve(sums, ridge * (spread(sums) or 1.0), given)
    return solved.head, solved.left_out(local.features, local.labels, local.weights * ours)
