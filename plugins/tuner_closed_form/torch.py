"""The solver of the last layer, next to PyTorch's modules."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.errors import UnsupportedError
from tuner.plugin import Solver, SolverInputs, Tail
from tuner.ridge.solve import LinearHead, regression_head
from tuner.ridge.sums import MOST_FEATURES, Sums, coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head


class ClosedFormTail(nn.Module, Solver):
    """The tail as it is given, whose last layer is solved for: by `tuner.ridge.union.union_head`.

    Args:
        tail: The tail; its head must be linear.
        settings: Those of `tuner.ridge.union.UnionSettings`.

    Raises:
        UnsupportedError: The head is no linear layer with a bias, or has too many features.
    """

    def __init__(self, tail: Tail, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.inner, self.layer = tail.module, tail.head
        self.union: UnionSettings = UnionSettings.of(settings)
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
        """Set the head's weights."""
        step, outputs = step_of(samples.features), len(self._given.bias)
        if not samples.targets.has_classes:
            self._set(self._regressed(samples, step, outputs))
            return
        empty = Domain.empty(samples.features.shape[1], outputs, step, multi=samples.targets.several)
        codes = coded(samples.features, step)
        local, known = (
            empty.added(codes[rows], samples.labels[rows]) for rows in (samples.is_local, ~samples.is_local)
        )
        solved = union_head(self._given, local, known, self.union)
        self.left_out = solved.left_out
        self._set(solved.head)

    def _regressed(self, samples: SolverInputs, step: float, outputs: int) -> LinearHead:
        codes = coded(samples.features, step)
        empty = Sums.empty(codes.shape[1], outputs, step)
        local, known = (
            empty.added(codes[rows], samples.labels[rows].astype(np.float64))
            for rows in (samples.is_local, ~samples.is_local)
        )
        weights = {"ridge": self.union.ridge, "local_weight": self.union.local_weight}
        solved, weight = regression_head(self._given, local, known, **weights)
        own = samples.is_local
        self.left_out = solved.left_out(codes[own] * step, samples.labels[own], weight)
        return solved.head

    def _set(self, head: LinearHead) -> None:
        self.layer.weight.copy_(torch.from_numpy(head.weight.astype(np.float32)).view_as(self.layer.weight))
        self.layer.bias.copy_(torch.from_numpy(head.bias.astype(np.float32)))
