"""The solver of the last layer, next to PyTorch's modules."""

import numpy as np
import torch
from torch import nn

from tuner.plugin import Solver, SolverInputs, Tail, UnsupportedError
from tuner.plugin.ridge import (
    MOST_FEATURES,
    PENALTIES,
    Domain,
    LinearHead,
    Spectrum,
    UnionSettings,
    both_rows,
    chosen,
    coded,
    left_out,
    regression_head,
    step_of,
    union_head,
)


class ClosedFormTail(nn.Module, Solver):
    """The tail as it is given, whose last layer is solved for: by `tuner.ridge.union.union_head`.

    Args:
        tail: The tail; its head must be linear.
        joint: Whether one ridge head scores the classes of both domains, where global samples are mixed in.

    Raises:
        UnsupportedError: The head is no linear layer with a bias, or has too many features.
    """

    def __init__(self, tail: Tail, *, joint: bool) -> None:
        super().__init__()
        self.inner, self._joint = tail.module, joint
        self.__dict__["layer"] = tail.head  # as an attribute it would be a module once more, and saved twice
        weight, bias = getattr(self.layer, "weight", None), getattr(self.layer, "bias", None)
        if not isinstance(self.layer, nn.Linear | nn.Conv2d) or weight is None or bias is None:
            raise UnsupportedError(
                f"a head in closed form is a linear layer with a bias, not {type(self.layer).__name__}"
            )
        matrix = weight.detach().flatten(1)
        if matrix.shape[1] > MOST_FEATURES:
            raise UnsupportedError(
                f"a head in closed form takes at most {MOST_FEATURES} features, but this model's head takes "
                f"{matrix.shape[1]}"
            )
        for value in tail.module.parameters():
            value.requires_grad_(value is weight or value is bias)
        self._given = LinearHead(matrix.double().numpy().copy(), bias.detach().double().numpy().copy())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.inner(value)
        return logits

    def solve(self, samples: SolverInputs) -> None:
        """Choose by leave-one-out what to solve with, and set the head's weights."""
        step, outputs, targets = step_of(samples.features), len(self._given.bias), samples.targets
        empty = Domain.empty(samples.features.shape[1], outputs, step, targets)
        codes = coded(samples.features, step)
        local, known = (
            empty.added(codes[rows], samples.labels[rows]) for rows in (samples.is_local, ~samples.is_local)
        )
        weight = 1 / samples.known_weight
        if not targets.has_classes:
            ridge = regression_ridge(self._given, local, known, weight)
            self.notes = (f"a ridge of {ridge:,.0f} samples is best by leave-one-out",)
            head, self.left_out = regression_head(self._given, local, known, ridge, weight)
            self._set(head)
            return
        is_joint = self._joint and len(known) > 0
        settings = UnionSettings(local_weight=weight, scores="joint" if is_joint else "ridge")
        self.union = chosen(local, known, settings)
        self.notes = (f"{self.union.text} is best by leave-one-out",)
        solved = union_head(self._given, local, known, self.union)
        self.left_out = solved.left_out
        self._set(solved.head)

    def _set(self, head: LinearHead) -> None:
        self.layer.weight.copy_(torch.from_numpy(head.weight.astype(np.float32)).view_as(self.layer.weight))
        self.layer.bias.copy_(torch.from_numpy(head.bias.astype(np.float32)))


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
