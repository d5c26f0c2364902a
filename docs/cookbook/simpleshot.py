"""SimpleShot: the nearest mean of a class, of features that are centred and scaled to length one.

Source: Wang et al., SimpleShot: revisiting nearest-neighbor classification for few-shot learning, 2019. Means
have length one too, so that the head is linear.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class SimpleShot(plugin.Strategy[None]):
    name, stage, writes = "simpleshot", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> None:
        """Draw nothing."""

    def apply(self, plan: plugin.TrialPlan, knobs: None) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("simpleshot", plugin.EditTraits(solves=True))
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def nearest_mean(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch
    from torch.nn.functional import normalize

    class Head(torch.nn.Sequential, plugin.Solver):
        layer = tail.head

        def solve(self, samples: plugin.SolverInputs) -> None:
            x, y = torch.from_numpy(samples.features), torch.as_tensor(samples.labels)
            rows, centre = y.unique(), x.mean(0)
            weight = normalize(torch.stack([normalize(x[y == row] - centre).mean(0) for row in rows]))
            self.layer.weight.zero_()
            self.layer.bias.fill_(-1e4)  # of classes without samples
            self.layer.weight[rows] = weight.reshape(self.layer.weight[rows].shape)
            self.layer.bias[rows] = -weight @ centre

    return Head(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [SimpleShot()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"simpleshot": nearest_mean} if backend == "torch" else {}
