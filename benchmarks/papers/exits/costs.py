"""The times of `persephonee`: an image that leaves at each exit next to one session, and training steps."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
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
from benchmarks.papers.exits.trained import BATCH, Offline, heads_steps, planned
from benchmarks.papers.exits.users import EXITS
from tuner.arrays import Floats
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.export.segments import Segment
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.trial.inputs import computed_inputs, inference_prefix
from tuner.backends.torch.trial.opened import TailTraining
from tuner.ort.session import FEATURES, LOGITS
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.chain import Chain
from tuner.task import Task
from tuner.training.steps import Steps
from tuner_exits import placed

WHOLE = "one session"
NEVER = 2.0  # a threshold that no confidence is above


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
