"""A uniform model soup: the mean of several trainings from the same weights, at different learning rates.

Source: Wortsman et al., Model soups: averaging weights of multiple fine-tuned models improves accuracy without
increasing inference time, ICML 2022. Here each takes its part of the epochs, at the rate that the schedule has there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class ModelSoup(plugin.Strategy[float]):
    name, stage = "model_soup", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("models", (2, 3, 4), start=3)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        return replace(
            plan,
            shape=(*plan.shape, plugin.TailEdit.of("model_soup", plugin.EditTraits(traceable=False), models=knobs)),
        )


def soup(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    given = [(weight, weight.detach().clone()) for weight in tail.module.parameters()]

    class Soup(plugin.Evolving, torch.nn.Sequential):
        members: tuple[list[torch.Tensor], ...] = ()

        @torch.no_grad()
        def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
            if epoch * settings["models"] >= (len(self.members) + 1) * tail.plan.recipe.epochs:
                self.members += ([weight.detach().clone() for weight, _ in given],)
                for weight, start in given:
                    weight.copy_(start)
            return {}

        def state(self) -> dict[str, Any]:
            return {"members": list(self.members)}

        def restore(self, state: Mapping[str, Any]) -> None:
            self.members = tuple(state["members"])

        def finish(self, samples: plugin.TrainingSamples) -> tuple[str, ...]:
            for (weight, _), *several in zip(given, *self.members, strict=True):
                weight.copy_(torch.stack([*several, weight]).mean(0))
            return (f"mean of {len(self.members) + 1} trainings",)

    return Soup(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [ModelSoup()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"model_soup": soup} if backend == "torch" else {}
