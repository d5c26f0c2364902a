"""RanPAC: a fixed random layer in front of a head that ridge regression solves for.

Source: McDonnell et al., RanPAC: random projections and pre-trained models for continual learning, NeurIPS 2023.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class Ranpac(plugin.Strategy[float]):
    name, stage, writes = "ranpac", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("ridge", (1e-3, 1e-2, 1e-1), start=1e-2)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("ranpac", plugin.EditTraits(solves=True, keeps_weights=False), ridge=knobs)
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def ranpac(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    class Projected(torch.nn.Module, plugin.Solver):
        def __init__(self, classes: int, width: int) -> None:
            super().__init__()
            random = torch.randn(width, 2000, generator=torch.Generator().manual_seed(tail.seed))
            self.layer, self.out = torch.nn.Flatten(), torch.nn.Linear(2000, classes, bias=False)
            self.register_buffer("random", random)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.out((self.layer(value) @ self.random).relu())

        def solve(self, samples: plugin.SolverInputs) -> None:
            x = (torch.from_numpy(samples.features) @ self.random).relu().double()
            y = torch.nn.functional.one_hot(torch.as_tensor(samples.labels), len(self.out.weight)).double()
            gram = x.T @ x
            gram.diagonal().add_(settings["ridge"] * gram.diagonal().mean())
            self.out.weight.copy_(torch.linalg.solve(gram, x.T @ y).T)

    path = next(path for path, module in tail.module.named_modules() if module is tail.head).rpartition(".")
    setattr(tail.module.get_submodule(path[0]), path[2], Projected(*tail.head.weight.shape[:2]))
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [Ranpac()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"ranpac": ranpac} if backend == "torch" else {}
