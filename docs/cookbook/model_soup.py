"""A uniform model soup: the mean of several trainings from the same weights.

Source: Wortsman et al., Model soups: averaging weights of multiple fine-tuned models improves accuracy without
increasing inference time, ICML 2022. Here each takes its part of the epochs; they differ in the order of the samples.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tuner import plugin


class ModelSoup(plugin.Strategy[float]):
    name, stage = "model_soup", plugin.Stage.SHAPE

    def sample(self, draw: plugin.Draw, model: plugin.ModelInfo) -> float:
        return draw.choice("models", (1, 2, 3, 4), start=1)

    def apply(self, plan: plugin.TrialPlan, knobs: float) -> plugin.TrialPlan:
        edit = plugin.TailEdit.of("model_soup", plugin.EditTraits(traceable=False), models=knobs)
        return replace(plan, shape=(*plan.shape, edit)) if knobs > 1 else plan


def soup(tail: plugin.Tail, settings: Mapping[str, Any]) -> Any:
    import torch

    given, load = copy.deepcopy(tail.module.state_dict()), tail.module.load_state_dict

    class Soup(plugin.Evolving, torch.nn.Sequential):
        def begin(self, training: plugin.Training) -> None:
            self.optimiser, self.members = training.optimiser, list[dict[str, torch.Tensor]]()

        def after_epoch(self, epoch: int, room: int | None = None) -> dict[str, float]:
            if epoch * settings["models"] >= (len(self.members) + 1) * tail.plan.recipe.epochs:
                self.members.append(copy.deepcopy(tail.module.state_dict()))
                load(given)
                self.optimiser.state.clear()
            return {}

        def state(self) -> dict[str, Any]:
            return {"members": self.members}

        def restore(self, state: Mapping[str, Any]) -> None:
            self.members = state["members"]

        def finish(self, samples: plugin.TrainingSamples) -> tuple[str, ...]:
            every = [*self.members, tail.module.state_dict()]
            load({name: torch.stack([one[name] for one in every]).float().mean(0) for name in given})
            return (f"mean of {len(every)} trainings",)

    return Soup(tail.module)


@plugin.hookimpl
def tuner_strategies() -> Iterable[plugin.Strategy[Any]]:
    return [ModelSoup()]


@plugin.hookimpl
def tuner_lowerings(backend: str) -> Mapping[str, plugin.Lowering]:
    return {"model_soup": soup} if backend == "torch" else {}
