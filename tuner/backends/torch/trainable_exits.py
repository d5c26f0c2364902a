"""Write what a bundle with exits needs to train them again without PyTorch, and check it beside PyTorch.

The path to the final head stays as it is: it is the exits' teacher. Into ``train/`` go a traced step and the inference
of each exit, and the plan's global samples, with others to say what was forgotten, as features at the first exit: what
deeper exits read, and the teacher's answers, are computed from there.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.backends.torch.features import VALIDATION_BITS
from tuner.backends.torch.heads import Taught
from tuner.backends.torch.lower import write
from tuner.backends.torch.picks import every, training
from tuner.backends.torch.step import StepError, trace, trace_inference
from tuner.backends.torch.trainable import BATCH, CHECK_SAMPLES, Features, compared, drawn, some
from tuner.errors import BundleError
from tuner.plan import CachePlan, TrialPlan
from tuner.runtime.chain import Chain
from tuner.runtime.exits_trainer import EXITS_FORMAT, LOGITS_OF, STEP_OF
from tuner.runtime.trainer import CHECK, REPLAY
from tuner.store.codec import Codec
from tuner.task import Task


def write_trainable_exits(
    task: Task, plan: TrialPlan, kept: Sequence[int], chain: Chain, sides: Sequence[nn.Module], folder: Path
) -> dict[str, Any]:
    """Write ``train/`` beside segments that were exported for it; see `tuner.backends.torch.segments.export`.

    Args:
        task: Its samples.
        plan: With exits.
        kept: Which of them the bundle has; at least one.
        chain: Of the bundle's segments.
        sides: The kept exits' heads.
        folder: The bundle's.

    Returns:
        What ``bundle.json`` says of it.

    Raises:
        BundleError: A step cannot be written, or trains other than PyTorch.
    """
    (folder / "train").mkdir(mode=0o700)
    # 8 bits whatever the plan stores: all that is deeper, the teacher's answers too, comes from these
    at_first = replace(plan, split=plan.heads.exits[kept[0]].block, cache=CachePlan())
    features = Features(task, at_first, lambda pixels: chain.step(0, pixels)[0])
    replay = [one for one in training(task, plan) if one.split == "global.train"]
    records = features.codes(replay, features.codec())
    records.save(folder / REPLAY)
    known = [some(every(task, "global.val"), CHECK_SAMPLES)] if task.global_ is not None else []
    features.codes(known, Codec(VALIDATION_BITS, records.codec.shape)).save(folder / CHECK)
    carried, worst = features.of(some(every(task, "local.train"), plan.recipe.batch_size)), 0.0
    for number, side in enumerate(sides):
        if number:
            carried = chain.step(number, carried)[0]
        worst = max(worst, _written(task, plan, side, carried, folder, number))
    return {
        "format": EXITS_FORMAT,
        "exits": len(sides),
        "batch_size": plan.recipe.batch_size,
        "replay_samples": len(records),
        "check_samples": sum(map(len, known)),
        "bits": records.codec.bits,
        "bytes": sum(path.stat().st_size for path in (folder / "train").iterdir()),
        "largest_loss_difference": worst,
    }


def _written(task: Task, plan: TrialPlan, side: nn.Module, features: Any, folder: Path, number: int) -> float:
    """Write an exit's step and inference; return the largest relative difference of losses from PyTorch's.

    Raises:
        BundleError: They cannot be written, or the step trains other than PyTorch.
    """
    multi, shape, outputs = task.loss == "multi-label", features.shape[1:], len(task.labels)
    recipe = replace(plan.recipe, freeze_bn=False)  # an exit's norms have no statistics but its own
    loss, path = Taught(plan.heads, multi), folder / STEP_OF.format(number)
    try:
        step = trace(side, recipe, loss=loss, input_shape=shape, outputs=outputs, batch_size=recipe.batch_size)
        write(step, path)
        inference = trace_inference(side, input_shape=shape, outputs=outputs, batch_size=BATCH)
        write(inference, folder / LOGITS_OF.format(number))
    except StepError as error:
        reason = str(error).rpartition(": ")[0]
        raise BundleError(f"{reason}, so --trainable cannot write it: export without --trainable") from error
    labels = [_probabilities(one, outputs) for one in drawn(recipe, outputs, several=multi)]

    def mean(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return loss.losses(logits, wanted).mean()

    return compared(side, recipe, path, features, labels, mean, plan.runtime.threads)


def _probabilities(labels: Any, outputs: int) -> Any:
    """Return labels as what an exit shall answer, hard and softened alike."""
    hard = labels if labels.ndim > 1 else np.eye(outputs, dtype=np.float32)[labels]
    return np.concatenate([hard, hard], axis=1)
