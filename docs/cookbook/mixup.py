"""Mixup: samples are mixed in pairs, and their labels with them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.plugin import Batch, BatchFunction, DataEdit, Draw, ModelInfo, Stage, Strategy, TrialPlan, hookimpl


class Mixup(Strategy[float]):
    name, stage, excludes = "mixup", Stage.DATA, frozenset({"distill", "exits"})

    def sample(self, draw: Draw, model: ModelInfo) -> float:
        return draw.choice("strength", (0.0, 0.1, 0.2, 0.4), start=0.2)

    def apply(self, plan: TrialPlan, knobs: float) -> TrialPlan:
        changes = (*plan.data.batches, DataEdit("mixup", (("strength", knobs),)))
        return replace(plan, data=replace(plan.data, batches=changes)) if knobs else plan


def mixup(batch: Batch, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    from torch import randint

    draw = np.random.default_rng(int(randint(2**62, (1,), generator=batch.generator)))
    share, order = float(draw.beta(settings["strength"], settings["strength"])), draw.permutation(len(batch.inputs))
    inputs, labels = (share * one + (1 - share) * one[order] for one in (batch.inputs, batch.labels))
    return inputs, labels


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    return [Mixup()]


@hookimpl
def tuner_batches(backend: str) -> Mapping[str, BatchFunction]:
    return {"mixup": mixup} if backend == "torch" else {}
