"""SLDA: the means of classes and one shared covariance, shrunk towards the identity, give a linear head.

Source: Hayes and Kanan, Lifelong machine learning with deep streaming linear discriminant analysis, CVPRW 2020.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Slda(plugin.Strategy[float]):
    name, stage, writes = "slda", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("shrinkage", (1e-4, 1e-2, 1e-1), start=1e-4)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("slda", plugin.EditTraits(solves=True), shrinkage=knobs)
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def slda(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    class Head(torch.nn.Sequential, plugin.Solver):
        layer = tail.head

        def solve(self, samples: plugin.SolverInputs) -> None:
            x, y, share = (
                torch.from_numpy(samples.features).double(),
                torch.as_tensor(samples.labels),
                settings["shrinkage"],
            )
            rows, places = y.unique(return_inverse=True)
            means = torch.stack([x[y == row].mean(0) for row in rows])
            spread = (x - means[places]).T @ (x - means[places]) / len(x)
            shrunk = (1 - share) * spread + share * torch.eye(len(spread)).double()
            weight = torch.linalg.solve(shrunk, means.T).T
            self.layer.weight.zero_()
            self.layer.bias.fill_(-1e4)  # of classes without samples
            self.layer.weight[rows] = weight.float().reshape(self.layer.weight[rows].shape)
            self.layer.bias[rows] = (-(weight * means).sum(1) / 2).float()

    return Head(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Slda()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"slda": slda} if backend == "torch" else {}
