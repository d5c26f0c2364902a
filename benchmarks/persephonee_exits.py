"""Exits of users: trained from the offline ones by each arm of `benchmarks.persephonee`, calibrated and scored."""

import copy
from dataclasses import dataclass, replace

from torch import nn

from benchmarks.setup import opened
from tuner.arrays import Floats
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.logits import exit_logits
from tuner.backends.torch.exits.steps import HeadsSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import (
    Selection,
    training_selections,
    whole_partition,
    withheld_selection,
)
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.calibration import Answers, confidences, correctness, operating_point, sweep
from tuner.runtime.train.exit_calibration import ExitCosts, calibrate_exits
from tuner.search.setting import cores
from tuner.task import Task
from tuner.task.info import task_info
from tuner.training.epoch import EpochLoop

BATCH = 32
OFFLINE = HeadsPlan(supervised=1.0, distilled=1.0)
ARMS = {
    "self-distilled": HeadsPlan(distilled=1.0),
    "with labels": HeadsPlan(supervised=1.0, distilled=1.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Of one user, by arm: accuracy of every exit, the calibrated policy's accuracy and seconds, and the sweep.

    Attributes:
        exits: Accuracy of each exit and of the final head on validation images.
        policy: (accuracy, mean seconds, mean FLOPs share) at the calibrated threshold.
        swept: (accuracy, mean seconds) on validation images, by global threshold of the grid, with the kept exits.
    """

    exits: dict[str, list[float]]
    policy: dict[str, tuple[float, float, float]]
    swept: dict[str, list[tuple[float, float]]]


def planned(here: Access, heads: HeadsPlan, epochs: int) -> TrialPlan:
    """Return a plan of exits alone; AdamW, as the paper's SGD at 0.01 has not moved new heads after so few steps."""
    info = here.loaded.info
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, optimiser="adamw", learning_rate=2e-3)
    return TrialPlan(
        model=info, task=task_info(here.task), split=info.num_blocks, heads=heads, recipe=recipe,
        cache=CachePlan("cache", 8), runtime=RuntimePlan(threads=cores()),
    )  # fmt: skip


def personalised(
    task: Task, offline: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, costs: ExitCosts,
    rounds: int, seed: int,
) -> Figures:  # fmt: skip
    """Train a user's exits from the offline ones, by each arm, and score them."""
    here = opened(task, loaded=offline.loaded)
    fill(here, [planned(here, plan.heads, 1)])
    figures = Figures({}, {}, {})
    for arm, loss in {"before": None, **ARMS}.items():
        own = copy.deepcopy(heads)
        taught = loss if loss is not None else OFFLINE
        mine = planned(here, replace(taught, mode="exits-only", exits=plan.heads.exits), rounds)
        if loss is not None:
            train(here, mine, own, final, seed)
        held, scored = (
            outputs(here, mine, own, final, pick)
            for pick in (withheld_selection(task), whole_partition(task, "local.val"))
        )
        truth = withheld_selection(task).labels()
        if arm != "with labels":  # without labels, agreement with the final head is all there is to calibrate on
            truth = held[-1].argmax(axis=-1)
        calibration = calibrate_exits(
            held, truth, mine.heads, costs.flops, multi=False, prune=True, labelled=arm == "with labels"
        )
        right, kept = correctness(scored, task.local.val.labels, multi=False), [*calibration.kept, -1]
        few = Answers(confidences(scored[kept], calibration.temperatures), right[kept])
        left = costs.select(calibration.kept)
        at = operating_point(few, left.seconds, calibration.thresholds)
        share = operating_point(few, left.flops, calibration.thresholds).mean_cost / left.flops.reached[-1]
        figures.exits[arm] = right.mean(axis=1).tolist()
        figures.policy[arm] = at.accuracy, at.mean_cost, share
        figures.swept[arm] = [(one.accuracy, one.mean_cost) for one in sweep(few, left.seconds)]
    return figures


def heads_steps(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module) -> HeadsSteps:
    """Return the training steps of some heads."""
    inputs = cut_inputs(here, plan, training_selections(here.task, plan), exact=False)
    return HeadsSteps(plan, heads, final, inputs, multi=False)


def train(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seed: int) -> None:
    """Train some heads for all of a plan's epochs."""
    samples = sum(map(len, training_selections(here.task, plan)))
    for _ in EpochLoop(heads_steps(here, plan, heads, final), plan.recipe, samples, seed).epochs():
        pass


def outputs(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, pick: Selection) -> Floats:
    """Return what every exit says of some samples."""
    return exit_logits(plan, heads, final, cut_inputs(here, plan, [pick], exact=True))
