"""Costs of leaving at each exit, and notes on what a calibration came to."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import fx, nn

from tuner.arrays import Floats, Labels
from tuner.backends.torch.measure import chain_seconds
from tuner.backends.torch.model.graph.blocks import counted
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.errors import TaskError
from tuner.plan.heads import Exit
from tuner.plan.trial import TrialPlan
from tuner.planner.heads_terms import head_flops
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.train.calibration import ExitCalibration, ExitCosts
from tuner.task import Task
from tuner_exits.torch.heads import complete


def describe_exits(plan: TrialPlan, calibration: ExitCalibration, logits: Floats, truth: Labels) -> list[str]:
    """Return a note on each exit of a plan, by logits float32 [exits + 1, n, outputs] of the calibration samples."""
    kind = plan.task.targets
    right = kind.correctness(logits, truth)
    notes = []

    for index, place in enumerate(plan.heads.exits):
        fate, heats = "pruned", [1.0]
        if index in calibration.kept:
            at = calibration.kept.index(index)
            share = 100 * calibration.rates[at]
            heats.append(calibration.temperatures[at])
            fate = f"threshold {calibration.thresholds[at]:.2f}, at which {share:.0f} % of the samples leave here"
        errors = [kind.calibration_error(logits[index], right[index], heat) for heat in heats]
        if not math.isnan(errors[0]):
            after = f", {errors[1]:.3f} at temperature {heats[1]:.2f}" if errors[1:] else ""
            fate = f"calibration error {errors[0]:.3f}{after}; {fate}"
        where = f"of {place.size} px" if place.size else f"before {plan.model.blocks[place.block].name}"
        notes.append(
            f"exit {where} ({place.channels} channels): {kind.exit_score} "
            f"{100 * right[index].mean():.1f} % of {len(truth)} calibration samples (final head "
            f"{100 * right[-1].mean():.1f} %), {fate}"
        )
    return notes


def bodies(model: OpenModel, plan: TrialPlan, blocks: Sequence[int], tail: nn.Module) -> list[nn.Module]:
    """Return what runs from the input to each of some blocks, and from the last of them to the logits.

    `tail` is what trained, if anything did: its layers may be others than the model's, and exits are before it then.
    """
    if model.chain is None:
        raise TaskError("exits cannot be placed in a model without cut points: leave exits out")
    ends = [*blocks, plan.model.num_blocks if plan.traits.keeps_weights else plan.split]
    edges = [model.chain.split_position(cut) for cut in (0, *ends)]
    parts: list[nn.Module] = [
        model.chain.part(begin, end) if end > begin else nn.Identity() for begin, end in pairwise(edges)
    ]
    return parts if plan.traits.keeps_weights else [*parts[:-1], nn.Sequential(parts[-1], tail)]


def branch(place: Exit) -> int:
    """Return the block of the chain before which an exit is; that of a smaller input is before all."""
    return 0 if place.size else place.block


def typical(task: Task) -> torch.Tensor:
    """Return some local validation samples, float32 [n, ...], over which FLOPs are meant: not all take the same way."""
    return torch.from_numpy(task.batch(task.local.val, range(min(SCORE_BATCH, len(task.local.val)))))


def exit_costs(
    model: OpenModel, plan: TrialPlan, heads: Sequence[nn.Module] | nn.ModuleList, tail: nn.Module, batch: torch.Tensor
) -> ExitCosts:
    """Return what it costs to leave at each exit: seconds of one sample alone, measured now, and FLOPs of a batch's."""
    sample = batch[:1]
    parts = bodies(model, plan, [branch(place) for place in plan.heads.exits], tail)
    parts = [fast(part) if isinstance(part, fx.GraphModule) else part.eval() for part in parts]
    reached = np.cumsum(chain_seconds(parts, sample))
    of_heads, value = [], spatial(sample)
    with torch.inference_mode():
        for part, head in zip(parts, complete(model, plan, heads), strict=False):
            value = part(value)
            of_heads += chain_seconds([fast(fx.symbolic_trace(head.eval()))], value)
    seconds = Costs(tuple(map(float, reached)), tuple(of_heads))
    return ExitCosts(seconds, exit_flops(model, plan, range(len(of_heads)), tail, batch))


def exit_flops(model: OpenModel, plan: TrialPlan, kept: Sequence[int], tail: nn.Module, batch: torch.Tensor) -> Costs:
    """Return the FLOPs of leaving at some of a plan's exits, and at the last, a mean over a batch of samples."""
    reached = [sum(block.flops for block in plan.model.blocks[: branch(plan.heads.exits[index])]) for index in kept]
    blocks, of_tail = plan.model.blocks, 0
    if not plan.traits.keeps_weights:
        blocks, of_tail = blocks[: plan.split], counted(tail, model.prefix(plan.split)(spatial(batch)))[0] // len(batch)
    reached.append(sum(block.flops for block in blocks) + of_tail)
    of_heads = [*head_flops(plan)]
    if plan.smaller is not None:
        of_heads[0] += sum(block.flops for block in plan.smaller.model.blocks[:-1])
    return Costs(tuple(map(float, reached)), tuple(float(of_heads[index]) for index in kept))


def truths(task: Task, domain: str, logits: Floats, labels: Labels) -> Labels:
    """Return the labels; the final head's answers where the local samples have none: agreement is then the score."""
    if domain != "local" or task.labelled:
        return labels
    return task.targets.answers(logits[-1])
