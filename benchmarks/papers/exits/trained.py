"""Exits that train by steps, next to those in closed form: trained offline, then on a user's images."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import thread_time

import numpy as np
import torch
from torch import nn

from benchmarks.lib.report import interleave
from benchmarks.lib.setup import opened
from benchmarks.papers.exits.users import EXITS, Answered, Outcome, User, judged, task_of, weights
from tuner.arrays import Floats
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.procedure import exit_logits
from tuner.backends.torch.exits.steps import HeadsSteps
from tuner.backends.torch.export.segments import Segment
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import Selection, training_selections, whole_partition, withheld_selection
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.backends.torch.trial.inputs import computed_inputs, inference_prefix
from tuner.backends.torch.trial.opened import TailTraining
from tuner.ort.session import FEATURES, LOGITS
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.heads_terms import head_flops
from tuner.processors import usable_processors
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.infer.chain import Chain
from tuner.targets import SINGLE_LABEL
from tuner.task import Domain, Subset, Task
from tuner.task.info import task_info
from tuner.training.epoch import EpochLoop
from tuner.training.steps import Steps
from tuner_exits import placed

BATCH, CHANNELS = 32, 128
OFFLINE = HeadsPlan("exits-only", supervised=1.0, distilled=1.0)
ARMS = {
    "with labels": replace(OFFLINE, confidence=0.8),
    "without labels": replace(OFFLINE, supervised=0.0, tolerance=0.1),
}
WHOLE = "one session"
NEVER = 2.0  # a threshold that no confidence is above


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


def linear_plan(task: Task, heads: HeadsPlan) -> TrialPlan:
    """Return the plan of the exits in closed form."""
    here = opened(task)
    return planned(here, replace(heads, exits=placed(here.loaded.info, EXITS, 0)), 1)


def leaving_seconds(task: Task, plan: TrialPlan, images: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of an image in one session, and as a chain by the exit that it leaves at, in turn.

    On one thread, in seconds of that thread: what else the machine does is not counted. All exits of the chain answer
    on the way.
    """
    here = opened(task)
    chain = here.loaded.chain
    if chain is None:
        raise ValueError("MobileNetV2 can be cut")
    cuts = (0, *(one.block for one in plan.heads.exits), plan.model.num_blocks)
    edges = [chain.split_position(cut) for cut in cuts]
    bodies = [chain.part(begin, end).eval() for begin, end in pairwise(edges)]
    sides, last = build_heads(plan).eval(), len(bodies) - 1
    samples = [task.batch(task.local.val, [index]) for index in range(images)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        value = torch.from_numpy(np.concatenate(samples[:2]))
        write_onnx(chain.part(edges[0], edges[-1]).eval(), value, folder / "whole.onnx", [LOGITS])
        paths = [folder / f"{number}.onnx" for number in range(len(bodies))]
        for number, (body, path) in enumerate(zip(bodies, paths, strict=True)):
            module = body if number == last else Segment(body, sides[number]).eval()
            write_onnx(module, value, path, [LOGITS] if number == last else [FEATURES, LOGITS])
            with torch.inference_mode():
                value = body(value).clone()
        one, outputs = [folder / "whole.onnx"], plan.model.outputs
        whole, parts = Chain(one, outputs, threads=1), Chain(paths, outputs, threads=1)
        arms: dict[str, Callable[[Floats], object]] = {WHOLE: partial(whole.leave_alone, thresholds=())}
        for at in range(len(bodies)):
            thresholds = [-1.0 if number == at else NEVER for number in range(last)]
            arms[f"leaves at {at}"] = partial(parts.leave_alone, thresholds=thresholds)
        found: dict[str, list[float]] = {arm: [] for arm in arms}
        for sample in samples * rounds:
            for arm, run in arms.items():
                begun = thread_time()
                run(sample)
                found[arm].append(thread_time() - begun)
    return {arm: median(seconds) for arm, seconds in found.items()}


def step_seconds(task: Task, trained: Offline, timed_steps: int) -> dict[str, list[float]]:
    """Time steps of batch 32, interleaved: of the whole model, of the exits with and without stored features."""
    here = replace(trained.here, task=task)
    stored = planned(here, replace(trained.plan.heads, supervised=0.0), 1)
    fill(here, [stored])
    plans = {"exits, stored features": stored, "exits, no store": replace(stored, cache=CachePlan())}
    steps = {name: heads_steps(here, one, copy.deepcopy(trained.heads), trained.final) for name, one in plans.items()}
    whole = replace(stored, heads=HeadsPlan(), split=0, cache=CachePlan())
    rows = computed_inputs(here.task, inference_prefix(here.loaded, 0), training_selections(here.task, whole))
    model: nn.Module = copy.deepcopy(here.loaded.model)
    full = EagerSteps(TailTraining(here.task, whole, model, rows, 0))
    selected = training_selections(here.task, stored)
    generator, count = np.random.default_rng(0), sum(map(len, selected))

    def stepping(steps: Steps) -> Callable[[], float]:
        steps.begin_epoch()
        return lambda: steps.step(generator.permutation(count)[:BATCH], whole.recipe.learning_rate)

    arms = {"whole model": stepping(full), **{name: stepping(own) for name, own in steps.items()}}
    return interleave(arms, timed_steps)
