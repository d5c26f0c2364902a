"""Global dataset mixing: training on a fraction of every global class, against forgetting.

Source: MoIL (University of Toronto, 2022), Algorithm 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tuner.plugin import Draw, ModelInfo, Stage, Strategy, TaskInfo, TrialPlan, hookimpl

#: The largest fraction of a large global set, which takes long to compute features of.
MOST_ALPHA = 0.1
#: Samples a class up to which the fraction may be larger: a tenth of a small class is an image or two.
SMALL_CLASS = 40
#: It may be larger too while all that is mixed in is at most so many times the local samples, and the model takes at
#: most so many FLOPs for them: some ten seconds of a small board.
MOST_RATIO, MOST_FLOPS = 10, 1e11
WEIGHTS = (0.0625, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Knobs:
    """The decisions about mixing.

    Attributes:
        alpha: Fraction of every global class that is mixed in; 0 mixes nothing in.
        weight: Weight of a mixed-in sample in the loss, where a local one has 1; of a head that is solved for, what all
            of them count, where all local ones count 1.
        balance: Whether batches hold every class as often as another.
    """

    alpha: float
    weight: float = 1.0
    balance: bool = False


class GlobalDatasetMixing(Strategy[Knobs]):
    """Mix a fraction α of every class of the global data into the local data."""

    name, stage = "gdm", Stage.DATA

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:
        """Draw α, the weight of what it takes, and whether batches are balanced."""
        most = most_alpha(draw.task, model)
        return Knobs(
            alpha=draw.number("alpha", 0.0, most, start=min(most, usual_alpha(draw.task))),
            weight=draw.choice("weight", WEIGHTS, start=1.0),
            balance=draw.choice("balance", (False, True), start=False),
        )

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the fraction, the weight and the order."""
        return replace(plan, data=replace(plan.data, alpha=knobs.alpha, weight=knobs.weight, balance=knobs.balance))


def most_alpha(task: TaskInfo | None, model: ModelInfo) -> float:
    """Return the largest fraction: all of a small global set, 0.1 of a large one; 1 where no task is given."""
    known = sum(task.global_per_class) if task else 0
    if task is None or not known:
        return 1.0
    affordable = MOST_FLOPS / max(1, sum(block.flops for block in model.blocks))
    few = min(MOST_RATIO * task.local_train, affordable) / known
    return min(1.0, max(MOST_ALPHA, SMALL_CLASS / max(task.global_per_class), few))


def usual_alpha(task: TaskInfo | None) -> float:
    """Return the fraction to begin with: as many global samples and a half as there are local ones; at least 0.05."""
    known = sum(task.global_per_class) if task else 0
    return max(0.05, 1.5 * task.local_train / known) if task and known else 0.05


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [GlobalDatasetMixing()]
