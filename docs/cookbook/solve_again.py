"""Ridge regression for the head on the features that the tail has learned."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class SolveAgain(plugin.Strategy[bool]):
    name, stage, excludes = "solve_again", plugin.Stage.SHAPE, frozenset({"growth", "exits", "closed_form"})

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> bool:
        return draw.choice("use", (False, True), start=False)

    def apply(self, plan: plugin.TrialPlan, knobs: bool) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("solve-again", plugin.EditTraits(traceable=False))
        return replace(plan, shape=(*plan.shape, edit)) if knobs else plan


def solving(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    class Solving(plugin.Evolving, torch.nn.Sequential):
        def finish(self, samples: plugin.TrainingSamples) -> tuple[str, ...]:
            inputs, head = samples.entering(tail.head), tail.head
            x = torch.nn.functional.pad(torch.from_numpy(inputs.features), (0, 1), value=1.0)
            y = torch.as_tensor(inputs.targets.one_hot(inputs.labels, len(head.bias)), dtype=x.dtype)
            solved = torch.linalg.solve(x.T @ x + 10 * torch.eye(x.shape[1]), x.T @ y)
            head.weight.copy_(solved[:-1].T.reshape(head.weight.shape))
            head.bias.copy_(solved[-1])
            return (f"head solved again on {len(x)} samples",)

    return Solving(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [SolveAgain()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"solve-again": solving} if backend == "torch" else {}
