"""The solver of the last layer, next to PyTorch's modules."""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tuner.arrays import Doubles
from tuner.plugin import Solver, SolverInputs, Tail, UnsupportedError
from tuner.plugin.ridge import (
    MOST_FEATURES,
    PENALTIES,
    Domain,
    HeadSolver,
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
from tuner.targets import Regression, Targets
from tuner_closed_form.sums import SummedHead


class SolvedHead(nn.Module, Solver):
    """The tail as it is given, whose last layer a subclass solves for.

    Args:
        tail: The tail; its head must be linear.

    Attributes:
        given: The head before it is solved for.

    Raises:
        UnsupportedError: The head is no linear layer with a bias, or has too many features.
    """

    def __init__(self, tail: Tail) -> None:
        super().__init__()
        self.inner = tail.module
        self.__dict__["layer"] = tail.head  # as an attribute it would be a module once more, and saved twice
        layer = tail.head
        if not isinstance(layer, nn.Linear | nn.Conv2d) or layer.bias is None:
            raise UnsupportedError(
                f"a head in closed form needs a linear layer with a bias as the last layer, not {type(layer).__name__}"
            )
        weight, bias = layer.weight, layer.bias
        matrix = weight.detach().flatten(1)
        if matrix.shape[1] > MOST_FEATURES:
            raise UnsupportedError(
                f"a head in closed form takes at most {MOST_FEATURES} features, but this model's head takes "
                f"{matrix.shape[1]}"
            )
        for value in tail.module.parameters():
            value.requires_grad_(value is weight or value is bias)
        self.given = LinearHead(matrix.double().numpy().copy(), bias.detach().double().numpy().copy())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.inner(value)
        return logits

    def set(self, head: LinearHead) -> None:
        """Set the weights."""
        self.layer.weight.copy_(torch.from_numpy(head.weight.astype(np.float32)).view_as(self.layer.weight))
        self.layer.bias.copy_(torch.from_numpy(head.bias.astype(np.float32)))


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
        scores = "joint" if self._joint and len(known) else "ridge"
        settings = UnionSettings(local_weight=1 / samples.known_weight, scores=scores)
        best = best_head(samples.targets, self.given, local, known, settings)
        self.left_out, self.union, self.notes = best.left_out, best.union, (f"{best.text} is best by leave-one-out",)
        self.set(best.head)


class SummedTail(SolvedHead):
    """The tail whose head a plugin solves from sums (`tuner_solvers`).

    Args:
        tail: The tail.
        settings: Those of the edit.
        solver: The plugin's function.
    """

    def __init__(self, tail: Tail, settings: Mapping[str, Any], solver: HeadSolver) -> None:
        super().__init__(tail)
        self._settings, self._solver = settings, solver

    def solve(self, samples: SolverInputs) -> None:
        """Set the head's weights."""
        how = SummedHead(self._solver, self.given, self._settings, samples.targets, samples.known_weight)
        self.set(how.head(*domains_of(samples, len(self.given.bias))))


def domains_of(samples: SolverInputs, outputs: int) -> tuple[Domain, Domain]:
    """Return the local samples, and the others, as codes of their features."""
    step = step_of(samples.features)
    empty = Domain.empty(samples.features.shape[1], outputs, step, samples.targets)
    codes, masks = coded(samples.features, step), (samples.is_local, ~samples.is_local)
    local, known = (empty.added(codes[rows], samples.labels[rows]) for rows in masks)
    return local, known


class BestHead(NamedTuple):
    """The head that is best by leave-one-out.

    Attributes:
        head: Its weights.
        left_out: Logits of the local samples, each by the head without it, float64 [local, outputs].
        text: What it is, for people.
        union: How a device solves it again, if it can.
    """

    head: LinearHead
    left_out: Doubles
    text: str
    union: UnionSettings | None = None


@singledispatch
def best_head(_: Targets, given: LinearHead, local: Domain, known: Domain, settings: UnionSettings) -> BestHead:
    """Return the best head for what a sample's label is; `settings` say whether it is joint, and what samples weigh."""
    settings = chosen(local, known, settings)
    solved = union_head(given, local, known, settings)
    return BestHead(solved.head, solved.left_out, settings.text, settings)


@best_head.register
def _(_: Regression, given: LinearHead, local: Domain, known: Domain, settings: UnionSettings) -> BestHead:
    ridge = regression_ridge(given, local, known, settings.local_weight)
    found = regression_head(given, local, known, ridge, settings.local_weight)
    return BestHead(*found, f"a ridge of {ridge:,.0f} samples")


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
