"""Exits that train by steps, next to those in closed form: trained offline, then on a user's images."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import nn

from benchmarks.lib.setup import opened
from benchmarks.papers.exits.solved import Answered, Outcome, judged
from benchmarks.papers.exits.users import EXITS, User, task_of, weights
from tuner.arrays import Floats
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.procedure import exit_logits
from tuner.backends.torch.exits.steps import HeadsSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import Selection, training_selections, whole_partition, withheld_selection
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.heads_terms import head_flops
from tuner.processors import usable_processors
from tuner.runtime.infer.calibration import Costs
from tuner.targets import SINGLE_LABEL
from tuner.task import Domain, Subset, Task
from tuner.task.info import task_info
from tuner.training.epoch import EpochLoop
from tuner_exits import placed

BATCH, CHANNELS = 32, 128
OFFLINE = HeadsPlan("exits-only", supervised=1.0, distilled=1.0)
ARMS = {
    "with labels": replace(OFFLINE, confidence=0.8),
    "without labels": replace(OFFLINE, supervised=0.0, tolerance=0.1),
}


@dataclass(frozen=True, slots=True, eq=False)
class Offline:
    """The offline stage's exits: trained on half of the global images, for all classes.

    Attributes:
        here: The task of all classes, and the store of features.
        plan: Their plan.
        heads: The heads.
        final: The final head.
    """

    here: Access
    plan: TrialPlan
    heads: nn.ModuleList
    final: nn.Module


def planned(here: Access, heads: HeadsPlan, epochs: int) -> TrialPlan:
    """Return a plan of exits alone; AdamW, as the paper's SGD at 0.01 has not moved new heads after so few steps."""
    info = here.loaded.info
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, optimiser="adamw", learning_rate=2e-3)
    return TrialPlan(
        model=info, task=task_info(here.task), split=info.num_blocks, heads=heads, recipe=recipe,
        cache=CachePlan("cache", 8), runtime=RuntimePlan(threads=usable_processors()),
    )  # fmt: skip


def offline(task: Task, images: Subset, epochs: int) -> Offline:
    """Train exits on the offline stage's images."""
    here = opened(replace(task, local=Domain(images, Subset(task.local.val, range(1)))))
    plan = planned(here, replace(OFFLINE, exits=placed(here.loaded.info, EXITS, CHANNELS)), epochs)
    fill(here, [plan])
    torch.manual_seed(0)
    heads, final = build_heads(plan), here.loaded.tail(plan.cuts[-1]).eval()
    train(here, plan, heads, final, 0)
    return Offline(here, plan, heads, final)


def personalised(task: Task, user: User, trained: Offline, epochs: int) -> dict[str, Outcome]:
    """Train a user's exits from the offline ones, the rows of her classes alone, and score them."""
    own = task_of(task, user)
    here = replace(trained.here, task=own, loaded=load(own))
    final, found = here.loaded.tail(trained.plan.cuts[-1]).eval(), {}
    for arm, loss in ARMS.items():
        plan = planned(here, replace(loss, exits=trained.plan.heads.exits), epochs)
        fill(here, [plan])
        heads = copy.deepcopy(trained.heads)
        for head in heads:
            _restrict(head, user)
        train(here, plan, heads, final, user.seed)
        fitted, scored = (
            Answered(outputs(here, plan, heads, final, pick), pick.labels())
            for pick in (withheld_selection(own), whole_partition(own, "local.val"))
        )
        share = weights(user, scored.labels)
        policy = judged(plan.heads, fitted, scored, user, flops_of(plan), out_of_fold=False)
        right = SINGLE_LABEL.correctness(scored.logits, scored.labels) @ share
        found[arm] = Outcome(len(set(user.images.tolist())), tuple(right.tolist()), (policy,))
    return found


def flops_of(plan: TrialPlan) -> Costs:
    """Return the FLOPs up to each exit and up to the final head, and those of the exits."""
    blocks = (*(one.block for one in plan.heads.exits), plan.model.num_blocks)
    reached = [float(sum(one.flops for one in plan.model.blocks[:block])) for block in blocks]
    return Costs(tuple(reached), tuple(map(float, head_flops(plan))))


def _restrict(head: nn.Module, user: User) -> None:
    """Leave a head only the rows of the user's classes."""
    last = list(head.children())[-1]
    if not isinstance(last, nn.Linear):
        raise TypeError("a head ends with a linear layer")
    rows = torch.from_numpy(user.classes)
    last.weight, last.bias = nn.Parameter(last.weight.detach()[rows]), nn.Parameter(last.bias.detach()[rows])


def heads_steps(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module) -> HeadsSteps:
    """Return the training steps of some heads."""
    inputs = cut_inputs(here, plan, training_selections(here.task, plan), exact=False)
    return HeadsSteps(plan, heads, final, inputs, loss=CROSS_ENTROPY)


def train(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seed: int) -> None:
    """Train some heads for all of a plan's epochs."""
    samples = sum(map(len, training_selections(here.task, plan)))
    for _ in EpochLoop(heads_steps(here, plan, heads, final), plan.recipe, samples, seed).epochs():
        pass


def outputs(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, pick: Selection) -> Floats:
    """Return what every exit says of some samples."""
    return exit_logits(plan, heads, final, cut_inputs(here, plan, [pick], exact=True))
