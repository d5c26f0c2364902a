"""Scores and sizes of a trained tail."""

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tuner.arrays import Floats
from tuner.backends.torch.model.layout import spatial
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.metrics import score as score_outputs
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
    """Return the accuracy over all outputs of the union head; for several labels a sample, the macro AUC."""
    return score_outputs(logits(tail, inputs), inputs.labels, multi=task.loss == "multi-label")


def logits(tail: nn.Module, inputs: TailInputs) -> Floats:
    """Return float32 [n, outputs] in evaluation mode."""
    tail.eval()
    batches = batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
    with torch.inference_mode():
        return np.concatenate([tail(spatial(inputs.read(rows))).numpy() for rows in batches])
