"""What the core itself offers, through the hooks that everyone uses."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from tuner.hookspecs import hookimpl
from tuner.knobs import Draw
from tuner.plan import CachePlan, ModelInfo, Optimiser, RecipePlan, RuntimePlan, Schedule, Stage, TrialPlan
from tuner.strategy import Strategy

if TYPE_CHECKING:
    from tuner.backends.base import Backend
    from tuner.host import Host
    from tuner.results.objectives import Objective
    from tuner.task import Task


class Recipe(Strategy[RecipePlan]):
    """How the tail trains: the knobs every training loop has."""

    name, stage = "recipe", Stage.RECIPE

    def sample(self, draw: Draw, model: ModelInfo) -> RecipePlan:  # noqa: ARG002 - the same for every model
        """Draw the recipe."""
        return RecipePlan(
            epochs=draw.integer("epochs", 1, 200, log=True),
            batch_size=draw.integer("batch_size", 1, 512, log=True),
            optimiser=draw.choice("optimiser", get_args(Optimiser)),
            learning_rate=draw.number("learning_rate", 1e-6, 1.0, log=True),
            weight_decay=draw.number("weight_decay", 0.0, 0.1),
            schedule=draw.choice("schedule", get_args(Schedule)),
            patience=draw.integer("patience", 0, 50),
            freeze_bn=draw.choice("freeze_bn", (True, False)),
            micro_batches=draw.choice("micro_batches", (1, 2, 4, 8)),
        )

    def apply(self, plan: TrialPlan, knobs: RecipePlan) -> TrialPlan:
        """Set the recipe."""
        return replace(plan, recipe=knobs)


class SingleStage(Strategy[float]):
    """Keep nothing: the prefix runs in every epoch, on augmented inputs. The papers' baseline."""

    name, stage = "none", Stage.CACHE

    def sample(self, draw: Draw, model: ModelInfo) -> float:  # noqa: ARG002 - the same for every model
        """Draw the strength of augmentation."""
        return draw.number("augment", 0.0, 1.0)

    def apply(self, plan: TrialPlan, knobs: float) -> TrialPlan:
        """Set the strength."""
        return replace(plan, cache=CachePlan(augment=knobs))


@dataclass(frozen=True, slots=True)
class Runtime(Strategy[RuntimePlan]):
    """What carries the plan out; `backends` names those installed, at the time of asking."""

    backends: Callable[[], Sequence[str]]
    name, stage = "runtime", Stage.RUNTIME

    def sample(self, draw: Draw, model: ModelInfo) -> RuntimePlan:  # noqa: ARG002 - the same for every model
        """Draw backend and threads."""
        return RuntimePlan(
            backend=draw.choice("backend", self.backends()),
            threads=draw.integer("threads", 1, len(os.sched_getaffinity(0))),
        )

    def apply(self, plan: TrialPlan, knobs: RuntimePlan) -> TrialPlan:
        """Set the runtime."""
        return replace(plan, runtime=knobs)


class Builtin:
    """The core's own plugin."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    @hookimpl
    def tuner_strategies(self) -> Iterable[Strategy[Any]]:
        """Offer recipe, single-stage training and runtime."""
        return [Recipe(), SingleStage(), Runtime(lambda: tuple(self._host.backends))]

    @hookimpl
    def tuner_backends(self) -> "Iterable[Backend]":
        """Offer PyTorch and ONNX Runtime."""
        from tuner.backends.ort.backend import OrtBackend
        from tuner.backends.torch import TorchBackend

        return [TorchBackend(), OrtBackend()]

    @hookimpl
    def tuner_objectives(self) -> "Iterable[Objective]":
        """Offer accuracy, time and memory."""
        from tuner.results.objectives import OBJECTIVES

        return OBJECTIVES

    @hookimpl
    def tuner_tasks(self) -> "Mapping[str, Callable[[], Task]]":
        """Offer the digits."""
        from tuner.task.digits import digits

        return {"digits": digits}
