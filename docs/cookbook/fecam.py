"""FeCAM: the Mahalanobis distance to the mean of each class, by the covariance of that class, of unskewed features.

Source: Goswami et al., FeCAM: exploiting the heterogeneity of class distributions in exemplar-free continual learning,
NeurIPS 2023. Where matrices of all classes were above 16 MB, the classes share one, as in the paper for few samples.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Fecam(plugin.Strategy[float]):
    name, stage, writes = "fecam", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("shrinkage", (1.0, 10.0, 100.0), start=1.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("fecam", plugin.EditTraits(solves=True, keeps_weights=False), shrinkage=knobs)
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def fecam(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    def unskewed(x: torch.Tensor) -> torch.Tensor:
        return x.sign() * x.abs().sqrt()

    class Distances(torch.nn.Module, plugin.Solver):
        def __init__(self, classes: int, width: int) -> None:
            super().__init__()
            self.layer, self.means = torch.nn.Flatten(), torch.nn.Parameter(torch.zeros(classes, width))
            self.roots = torch.nn.Parameter(torch.zeros(classes if classes * width**2 < 4e6 else 1, width, width))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            apart = unskewed(self.layer(value))[:, None] - self.means  # [n, classes, width]
            return -(apart.transpose(0, 1) @ self.roots).square().mean(2).T

        def solve(self, samples: plugin.SolverInputs) -> None:
            x, y = unskewed(torch.from_numpy(samples.features)).double(), torch.as_tensor(samples.labels)
            self.means[:] = torch.stack([x[y == row].mean(0).nan_to_num(1e3) for row in range(len(self.means))])
            for row, root in enumerate(self.roots):
                away = (x - self.means[y])[(y == row) | (len(self.roots) == 1)]
                spread = away.T @ away / max(1, len(away))
                spread.diagonal().add_(settings["shrinkage"] * spread.diagonal().mean() + 1e-6)
                root[:] = torch.linalg.cholesky(torch.linalg.inv(spread / spread.diag().outer(spread.diag()).sqrt()))

    path = next(path for path, module in tail.module.named_modules() if module is tail.head).rpartition(".")
    setattr(tail.module.get_submodule(path[0]), path[2], Distances(*tail.head.weight.shape[:2]))
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Fecam()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"fecam": fecam} if backend == "torch" else {}
