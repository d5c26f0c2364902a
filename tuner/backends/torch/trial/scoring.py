"""Scores and sizes of a trained tail."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.arrays import Floats, Labels
from tuner.backends.torch.model.layout import spatial
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.errors import TrainingError
from tuner.metrics import score as score_outputs
from tuner.results.counts import ClassCounts
from tuner.task import Task
from tuner.training.schedule import batches_of

SCORE_BATCH = 32


def sizes(model: OpenModel, cut: int, tail: nn.Module, example: torch.Tensor) -> dict[str, float]:
    """Return the whole model's parameters and the FLOPs of one sample's forward pass, the tail's as it is now."""
    tail.eval()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        tail(example[:1])
    frozen = model.info.blocks[:cut]
    parameters = sum(value.numel() for value in tail.parameters()) + sum(block.parameters for block in frozen)
    return {"parameters": parameters, "flops": counter.get_total_flops() + sum(block.flops for block in frozen)}


def score(task: Task, tail: nn.Module, inputs: TailInputs) -> float:
    """Return the accuracy over all outputs of the union head; for several labels a sample, the macro AUC.

    Raises:
        TrainingError: Some logits are not finite.
    """
    return score_outputs(logits(tail, inputs), inputs.labels, multi=task.loss == "multi-label")


def scores(
    task: Task, tail: nn.Module, validation: Mapping[str, TailInputs]
) -> tuple[dict[str, float], dict[str, ClassCounts]]:
    """Return the accuracy on each domain's validation samples by the name of the value, and the classes by domain.

    Raises:
        TrainingError: Some logits are not finite.
    """
    values, classes = dict[str, float](), dict[str, ClassCounts]()
    for domain, inputs in validation.items():
        outputs = logits(tail, inputs)
        values[f"{domain}_accuracy"] = score_outputs(outputs, inputs.labels, multi=task.loss == "multi-label")
        classes |= {domain: counts} if (counts := classes_of(task, outputs, inputs.labels)) else {}
    return values, classes


def classes_of(task: Task, outputs: Floats, labels: Labels) -> ClassCounts | None:
    """Return the predictions counted by class; None where samples have several labels, or none.

    Args:
        task: What the samples are of.
        outputs: float32 [n, outputs].
        labels: Their labels.
    """
    counted = task.loss == "single-label" and task.labelled
    return ClassCounts.of(outputs.argmax(axis=1), labels) if counted else None


def logits(tail: nn.Module, inputs: TailInputs) -> Floats:
    """Return float32 [n, outputs] in evaluation mode.

    Raises:
        TrainingError: Some are not finite.
    """
    tail.eval()
    batches = batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
    with torch.inference_mode():
        outputs = np.concatenate([tail(spatial(inputs.read(rows))).numpy() for rows in batches])
    require_finite("the tail", outputs)
    return outputs


def require_finite(whose: str, outputs: Floats) -> None:
    """Refuse logits that are no numbers: the class they would choose says nothing.

    Args:
        whose: Who gives them, for the message.
        outputs: float32 [..., n, outputs].

    Raises:
        TrainingError: Some are not finite.
    """
    broken = ~np.isfinite(outputs).all(axis=-1)
    if broken.any():
        samples = int(broken.reshape(-1, broken.shape[-1]).any(axis=0).sum())
        raise TrainingError(
            f"{whose} must give finite logits in evaluation mode, but for {samples} of {broken.shape[-1]} samples some "
            "are not, so that there is no score: check the model and the plan's tail edits, or lower "
            "recipe.learning_rate"
        )
