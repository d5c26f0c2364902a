"""Tip-Adapter: the given head, and the labels of the training samples that a sample is like.

Source: Zhang et al., Tip-Adapter: training-free adaption of CLIP for few-shot classification, ECCV 2022, equation 6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class TipAdapter(plugin.Strategy[float]):
    name, stage, writes = "tip_adapter", plugin.Stage.SPLIT, frozenset({plugin.Stage.SHAPE})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("alpha", (1.0, 10.0, 100.0), start=1.0)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("tip_adapter", plugin.EditTraits(solves=True, keeps_weights=False), alpha=knobs)
        return replace(plan, split=plan.model.num_blocks - 1, shape=(*plan.shape, edit))


def tip_adapter(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch
    from torch.nn.functional import normalize, one_hot

    class Cached(torch.nn.Module, plugin.Solver):
        def __init__(self, head: Any, samples: int) -> None:
            super().__init__()
            self.layer, self.head = torch.nn.Flatten(), head
            self.register_buffer("keys", torch.zeros(samples, head.weight.shape[1]))
            self.register_buffer("labels", torch.zeros(samples, len(head.weight)))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            alike = normalize(self.layer(value)) @ self.keys.T
            return self.head(value).flatten(1) + settings["alpha"] * torch.exp(5.5 * (alike - 1)) @ self.labels

        def solve(self, samples: plugin.SolverInputs) -> None:
            self.keys = normalize(torch.from_numpy(samples.features))
            self.labels = one_hot(torch.as_tensor(samples.labels), self.labels.shape[1]).float()

    head, path = tail.head, next(path for path, module in tail.module.named_modules() if module is tail.head)
    parent, _, leaf = path.rpartition(".")
    samples = tail.plan.local_samples + tail.plan.global_samples
    setattr(tail.module.get_submodule(parent), leaf, Cached(head, samples))
    return tail.module


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [TipAdapter()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"tip_adapter": tip_adapter} if backend == "torch" else {}
