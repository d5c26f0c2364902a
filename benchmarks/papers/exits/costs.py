"""What exits of `benchmarks.papers.exits.persephonee` cost: FLOPs, latency of leaving, and steps of training."""

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

from benchmarks.lib.report import interleave
from benchmarks.lib.setup import opened, plan_for
from benchmarks.papers.exits.users import EXITS
from tuner.arrays import Floats
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.backends.torch.trial.inputs import computed_inputs, inference_prefix
from tuner.backends.torch.trial.opened import TailTraining
from tuner.ort.session import FEATURES, LOGITS
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.heads_terms import head_flops
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.infer.chain import Chain
from tuner.task import Task
from tuner.training.steps import Steps
from tuner_exits import placed
from tuner_exits.torch.heads import build_heads
from tuner_exits.torch.inputs import cut_inputs
from tuner_exits.torch.segments import Segment
from tuner_exits.torch.steps import HeadsSteps

BATCH, CHANNELS = 32, 128
WHOLE = "one session"
NEVER = 2.0  # a threshold that no confidence is above


def flops_of(plan: TrialPlan) -> Costs:
    """Return the FLOPs up to each exit and up to the final head, and those of the exits."""
    blocks = (*(one.block for one in plan.heads.exits), plan.model.num_blocks)
    reached = [float(sum(one.flops for one in plan.model.blocks[:block])) for block in blocks]
    return Costs(tuple(reached), tuple(map(float, head_flops(plan))))


def exits_plan(here: Access, heads: HeadsPlan, channels: int = 0) -> TrialPlan:
    """Return a plan of exits alone: linear ones, or some with convolutions of so many channels."""
    info = here.loaded.info
    recipe = RecipePlan(epochs=1, batch_size=BATCH, optimiser="adamw", learning_rate=2e-3)
    plan = plan_for(here.task, here.loaded, info.num_blocks, bits=8, recipe=recipe)
    return replace(plan, heads=replace(heads, exits=placed(info, EXITS, channels)))


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


def step_seconds(task: Task, timed_steps: int) -> dict[str, list[float]]:
    """Time steps of batch 32, interleaved: of the whole model, of exits that train with and without stored features."""
    here = opened(task)
    stored = exits_plan(here, HeadsPlan("exits-only", supervised=0.0, distilled=1.0), CHANNELS)
    fill(here, [stored])
    selected, final = training_selections(task, stored), here.loaded.tail(stored.cuts[-1]).eval()
    generator, count = np.random.default_rng(0), sum(map(len, selected))
    whole = replace(stored, heads=HeadsPlan(), split=0, cache=CachePlan())
    rows = computed_inputs(task, inference_prefix(here.loaded, 0), training_selections(task, whole))

    def stepping(steps: Steps) -> Callable[[], float]:
        steps.begin_epoch()
        return lambda: steps.step(generator.permutation(count)[:BATCH], whole.recipe.learning_rate)

    def heads_steps(plan: TrialPlan) -> HeadsSteps:
        inputs = cut_inputs(here, plan, selected, exact=False)
        return HeadsSteps(plan, build_heads(plan), final, inputs, loss=CROSS_ENTROPY)

    arms = {
        "whole model": stepping(EagerSteps(TailTraining(task, whole, copy.deepcopy(here.loaded.model), rows, 0))),
        "exits, stored features": stepping(heads_steps(stored)),
        "exits, no store": stepping(heads_steps(replace(stored, cache=CachePlan()))),
    }
    return interleave(arms, timed_steps)
