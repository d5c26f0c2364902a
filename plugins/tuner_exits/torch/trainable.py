"""Write what a bundle with exits needs to train them again without PyTorch, and check it next to PyTorch.

The path to the final head stays as it is: it is the exits' teacher. Into ``train/`` go a traced step and the inference
of each exit, and the plan's global samples, with others to say what was forgotten, as features at the first exit: what
deeper exits read, and the teacher's answers, are computed from there. Sums of all global samples, where exits in closed
form begin with them, are there as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from tuner.arrays import Floats
from tuner.backends.torch.export.trainable.features import BATCH, Features
from tuner.backends.torch.export.trainable.step_check import compare_training, random_labels, unwritable
from tuner.backends.torch.features.selection import Selection, drawn, whole_partition
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.inference import trace_inference
from tuner.backends.torch.step.losses import ExitLoss
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import torch_loss
from tuner.bundle.info import Section, TrainKind
from tuner.plan.parts import CachePlan
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.files import LOGITS_OF, STEP_OF, SUMS
from tuner.task import Task


def write_trainable_exits(
    task: Task,
    plan: TrialPlan,
    kept: Sequence[int],
    chain: Chain,
    sides: Sequence[nn.Module],
    mixed: Sequence[Selection],
    folder: Path,
    sums: Sequence[Mapping[str, torch.Tensor]] = (),
) -> dict[str, Any]:
    """Write ``train/`` next to segments that were exported for it; return its section of ``bundle.json``.

    Args:
        task: Its samples.
        plan: Plan with exits.
        kept: Indices of the exits that the bundle has (at least one), whose heads are `sides`.
        chain: The bundle's segments.
        sides: Likewise.
        mixed: The global samples that they were trained on.
        folder: The bundle's.
        sums: Sums of global samples that the kept exits were solved for with, if any.

    Raises:
        BundleError: A step cannot be written, or trains other than PyTorch.
    """
    (folder / Section.TRAIN).mkdir(mode=0o700)
    # 8 bits whatever the plan stores: all that is deeper, the teacher's answers too, comes from these
    at_first = replace(plan, split=plan.heads.exits[kept[0]].block, cache=CachePlan())
    features = Features(task, at_first, lambda pixels: chain.step(0, pixels)[0])
    inputs, worst = features.of(drawn(whole_partition(task, "local.train"), plan.recipe.batch_size)), 0.0
    for number, side in enumerate(sides):
        if number:
            inputs = chain.step(number, inputs)[0]
        worst = max(worst, _write_exit(task, plan, side, inputs, folder, number))
    if sums:
        tensors = {f"{at}.{name}": value for at, own in enumerate(sums) for name, value in own.items()}
        save_file(tensors, folder / SUMS)
    replay = features.replay(mixed, features.codec())
    check = features.check(replay.codec.shape)
    return features.save(folder, replay, check, TrainKind.EXITS, largest_loss_difference=worst, exits=len(sides))


def _write_exit(task: Task, plan: TrialPlan, side: nn.Module, inputs: Floats, folder: Path, number: int) -> float:
    """Write an exit's inference, and where it trains the step; return the losses' largest relative difference."""
    shape, outputs = inputs.shape[1:], len(task.labels)
    recipe = replace(plan.recipe, freeze_bn=False)  # an exit's norms have no statistics but its own
    loss, path = ExitLoss(plan.heads, torch_loss(task.targets)), folder / STEP_OF.format(number)
    try:
        if not plan.heads.ridge:  # else a round solves for it
            step = trace(side, recipe, loss=loss, input_shape=shape, outputs=outputs, batch_size=recipe.batch_size)
            write(step, path)
        inference = trace_inference(side, input_shape=shape, outputs=outputs, batch_size=BATCH)
        write(inference, folder / LOGITS_OF.format(number))
    except StepError as error:
        raise unwritable(error) from error
    if plan.heads.ridge:
        return 0.0
    hard = (task.targets.one_hot(own, outputs) for own in random_labels(recipe, outputs, task.targets))
    labels = [np.concatenate([own, own], axis=1) for own in hard]

    def mean(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss.losses(logits, targets).mean()

    return compare_training(side, recipe, path, inputs, labels, mean, plan.runtime.threads)
