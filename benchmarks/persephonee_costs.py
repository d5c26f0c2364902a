"""What `benchmarks.persephonee` times: an image that leaves at each exit, and training steps."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from benchmarks.persephonee_exits import ARMS, BATCH, heads_steps, planned
from benchmarks.report import interleave
from benchmarks.setup import opened
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import training_selections
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.trial.inputs import tail_inputs
from tuner.ort.session import Session
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import head_flops
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.train.exit_calibration import ExitCosts
from tuner.task import Task
from tuner.training.steps import Steps

TIMED_RUNS = 15


def ort_costs(here: Access, plan: TrialPlan, heads: nn.ModuleList) -> ExitCosts:
    """Return what it costs to leave at each exit: seconds of one image by ONNX Runtime, and FLOPs."""
    chain = here.loaded.chain
    if chain is None:
        raise ValueError("MobileNetV2 can be cut")
    blocks = [one.block for one in plan.heads.exits]
    edges = [chain.split_position(split) for split in (0, *blocks, plan.model.num_blocks)]
    value, bodies, sides = torch.zeros(2, *here.task.input_shape), [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (begin, end) in enumerate(pairwise(edges)):
            part = chain.part(begin, end).eval()
            bodies.append(_alone(part, value, Path(folder) / "part.onnx"))
            with torch.inference_mode():
                value = part(value).clone()
            if number < len(heads):
                sides.append(_alone(heads[number].eval(), value, Path(folder) / "head.onnx"))
    flops = [sum(one.flops for one in plan.model.blocks[:block]) for block in (*blocks, plan.model.num_blocks)]
    seconds = Costs(tuple(np.cumsum(bodies).tolist()), tuple(sides))
    return ExitCosts(seconds, Costs(tuple(map(float, flops)), tuple(map(float, head_flops(plan)))))


def _alone(module: nn.Module, value: torch.Tensor, path: Path) -> float:
    """Return the median seconds of a module on one sample by ONNX Runtime."""
    write_onnx(module, value, path, ["logits"])
    session, batch, taken = Session(path), value[:1].numpy(), []
    for _ in range(TIMED_RUNS):
        started = perf_counter()
        session.logits(batch)
        taken.append(perf_counter() - started)
    return median(taken)


def step_seconds(
    task: Task, offline: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, timed_steps: int
) -> dict[str, list[float]]:
    """Time steps of batch 32, interleaved: of the whole model, of the exits with and without stored features."""
    here = opened(task, loaded=offline.loaded)
    stored = planned(here, replace(ARMS["self-distilled"], mode="exits-only", exits=plan.heads.exits), 1)
    fill(here, [stored])
    plans = {"exits, stored features": stored, "exits, no store": replace(stored, cache=CachePlan())}
    steps = {name: heads_steps(here, one, copy.deepcopy(heads), final) for name, one in plans.items()}
    whole = replace(stored, heads=HeadsPlan(), split=0, cache=CachePlan())
    rows = tail_inputs(here.task, here.loaded, 0, training_selections(here.task, whole), None)
    full = EagerSteps(here.task, whole, copy.deepcopy(here.loaded.model), rows, 0)
    selected = training_selections(here.task, stored)
    generator, count = np.random.default_rng(0), sum(map(len, selected))

    def stepping(steps: Steps) -> Callable[[], float]:
        steps.begin_epoch()
        return lambda: steps.step(generator.permutation(count)[:BATCH], whole.recipe.learning_rate)

    arms = {"whole model": stepping(full), **{name: stepping(own) for name, own in steps.items()}}
    return interleave(arms, timed_steps)
