"""Costs of leaving at each exit, and notes on what a calibration came to."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import fx, nn

from tuner.arrays import Floats, Labels
from tuner.backends.torch.measure import chain_seconds
from tuner.backends.torch.model.graph.layout import fast, spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.errors import TaskError
from tuner.metrics import expected_calibration_error
from tuner.plan.trial import TrialPlan
from tuner.planner.heads_terms import head_flops
from tuner.runtime.infer.calibration import Costs
from tuner.runtime.train.calibration import ExitCalibration, ExitCosts
from tuner.task import Task


def describe_exits(plan: TrialPlan, calibration: ExitCalibration, logits: Floats, truth: Labels) -> list[str]:
    """Return a note on each exit of a plan, by logits float32 [exits + 1, n, outputs] of the calibration samples."""
    kind = plan.task.targets
    right = kind.correctness(logits, truth)
    notes = []

    def error(index: int, temperature: float) -> str:
        return f"{expected_calibration_error(kind.confidences(logits[index], temperature), right[index]):.3f}"

    for index, place in enumerate(plan.heads.exits):
        fate, after = "pruned", ""
        if index in calibration.kept:
            at = calibration.kept.index(index)
            share, temperature = 100 * calibration.rates[at], calibration.temperatures[at]
            fate = f"threshold {calibration.thresholds[at]:.2f}, at which {share:.0f} % of the samples leave here"
            after = f", {error(index, temperature)} at temperature {temperature:.2f}" if kind.has_classes else ""
        if kind.has_classes:  # else a confidence is no probability to be right
            fate = f"calibration error {error(index, 1.0)}{after}; {fate}"
        notes.append(
            f"exit before {plan.model.blocks[place.block].name} ({place.channels} channels): {kind.exit_score} "
            f"{100 * right[index].mean():.1f} % of {len(truth)} calibration samples (final head "
            f"{100 * right[-1].mean():.1f} %), {fate}"
        )
    return notes


def exit_costs(
    model: OpenModel, plan: TrialPlan, heads: Sequence[nn.Module] | nn.ModuleList, sample: torch.Tensor
) -> ExitCosts:
    """Return what it costs to leave at each exit: seconds of one sample alone, measured now, and FLOPs."""
    if model.chain is None:
        raise TaskError("exits cannot be placed in a model without cut points: leave exits out")
    blocks = [place.block for place in plan.heads.exits]
    edges = [model.chain.split_position(cut) for cut in (0, *blocks, plan.model.num_blocks)]
    parts = [fast(model.chain.part(begin, end)) for begin, end in pairwise(edges)]
    reached = np.cumsum(chain_seconds(parts, sample))
    of_heads, value = [], spatial(sample)
    with torch.inference_mode():
        for part, head in zip(parts, heads, strict=False):
            value = part(value)
            of_heads += chain_seconds([fast(fx.symbolic_trace(head.eval()))], value)
    seconds = Costs(tuple(map(float, reached)), tuple(of_heads))
    return ExitCosts(seconds, exit_flops(plan, range(len(blocks))))


def exit_flops(plan: TrialPlan, kept: Sequence[int]) -> Costs:
    """Return the FLOPs of leaving at some of a plan's exits, and at the last."""
    blocks = [*(plan.heads.exits[index].block for index in kept), plan.model.num_blocks]
    reached = [sum(block.flops for block in plan.model.blocks[:cut]) for cut in blocks]
    of_heads = head_flops(plan)
    return Costs(tuple(map(float, reached)), tuple(float(of_heads[index]) for index in kept))


def truths(task: Task, domain: str, logits: Floats, labels: Labels) -> Labels:
    """Return the labels; the final head's answers where the local samples have none: agreement is then the score."""
    if domain != "local" or task.labelled:
        return labels
    return task.targets.answers(logits[-1])
