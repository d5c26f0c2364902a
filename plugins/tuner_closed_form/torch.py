"""The solver of the last layer, next to PyTorch's modules."""

from tuner.backends.torch.trial.edits.summed import SolvedHead, domains_of
from tuner.plugin import SolverInputs, Tail
from tuner.plugin.ridge import (
    PENALTIES,
    Domain,
    LinearHead,
    Spectrum,
    UnionSettings,
    both_rows,
    chosen,
    left_out,
    regression_head,
    union_head,
)


class ClosedFormTail(SolvedHead):
    """The tail as it is given, whose last layer is solved for: by `tuner.ridge.union.union_head`.

    Args:
        tail: The tail; its head must be linear.
        joint: Whether one ridge head scores the classes of both domains, where global samples are mixed in.
    """

    def __init__(self, tail: Tail, *, joint: bool) -> None:
        super().__init__(tail)
        self._joint = joint

    def solve(self, samples: SolverInputs) -> None:
        """Choose by leave-one-out what to solve with, and set the head's weights."""
        local, known = domains_of(samples, len(self.given.bias))
        weight = 1 / samples.known_weight
        if not samples.targets.has_classes:
            ridge = regression_ridge(self.given, local, known, weight)
            self.notes = (f"a ridge of {ridge:,.0f} samples is best by leave-one-out",)
            head, self.left_out = regression_head(self.given, local, known, ridge, weight)
            self.set(head)
            return
        is_joint = self._joint and len(known) > 0
        settings = UnionSettings(local_weight=weight, scores="joint" if is_joint else "ridge")
        self.union = chosen(local, known, settings)
        self.notes = (f"{self.union.text} is best by leave-one-out",)
        solved = union_head(self.given, local, known, self.union)
        self.left_out = solved.left_out
        self.set(solved.head)


def regression_ridge(given: LinearHead, local: Domain, known: Domain, local_weight: float = 1.0) -> float:
    """Return the penalty, in samples, of the regression whose squared error of samples left out is least.

    Arguments are those of `tuner.ridge.union.regression_head`.
    """
    features, truth, weights = both_rows(local, known, local_weight)
    spectrum, rest = Spectrum.of(features, weights), truth - features @ given.weight.T  # what is to be added

    def error(ridge: float) -> float:
        left = left_out(*spectrum.solved(rest, ridge), rest, weights)
        return float(weights @ ((left - rest) ** 2).mean(axis=1))

    return min(PENALTIES, key=error)
