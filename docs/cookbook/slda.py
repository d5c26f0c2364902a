"""SLDA: the means of classes and one shared covariance, shrunk towards the identity, give a linear head.

It is solved from sums of features, so that a bundle solves for it again on the device, without PyTorch.
Source: Hayes and Kanan, Lifelong machine learning with deep streaming linear discriminant analysis, CVPRW 2020.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tuner import plugin


class Slda(plugin.Strategy[float]):
    name, stage, writes = "slda", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("shrinkage", (1e-4, 1e-2, 1e-1), start=1e-4)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("slda", plugin.EditTraits(solves=True), shrinkage=knobs)
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def slda(sums: plugin.ridge.SolverSums) -> plugin.ridge.LinearHead:
    squares, totals, share = sums.all.gram[:-1, :-1], sums.all.cross.T, sums.settings["shrinkage"]
    counts = totals[:, -1:]
    rows = counts[:, 0] > 0
    means = totals[rows, :-1] / counts[rows]
    spread = (squares - means.T @ (counts[rows] * means)) / counts.sum()
    weight, bias = np.zeros_like(sums.given.weight), np.full(len(rows), -1e4)  # of classes without samples
    weight[rows] = np.linalg.solve((1 - share) * spread + share * np.eye(len(spread)), means.T).T
    bias[rows] = -(weight[rows] * means).sum(axis=1) / 2
    return plugin.ridge.LinearHead(weight, bias)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Slda()]


@plugin.hookimpl
def tuner_solvers() -> Mapping[str, plugin.ridge.HeadSolver]:
    return {"slda": slda}
