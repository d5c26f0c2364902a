"""The check of exported files: ONNX Runtime and PyTorch on the same samples, from pixels."""

from collections.abc import Callable

import numpy as np
import torch

from tuner.arrays import Floats
from tuner.backends.torch.model.graph.layout import spatial
from tuner.ort.parity import largest, largest_difference
from tuner.task import Samples, Task
from tuner.training.schedule import batches_of

CHECK_BATCH = 32
#: Takes a normalised batch, float32 [n, ...], and returns ONNX Runtime's logits, float32 [..., n, outputs].
Written = Callable[[Floats], Floats]
#: Takes the same as a tensor, and returns PyTorch's.
Original = Callable[[torch.Tensor], torch.Tensor]


def scored_partitions(task: Task) -> dict[str, Samples]:
    """Return the samples that an exported model is scored on, by the name of the score."""
    partitions = {"local_accuracy": task.local.val}
    if task.global_ is not None:
        partitions["global_accuracy"] = task.global_.val
    if task.local.test is not None:
        partitions["test_accuracy"] = task.local.test
    return partitions


def compare(task: Task, samples: Samples, written: Written, original: Original) -> tuple[Floats, float]:
    """Run samples through both.

    Returns:
        ONNX Runtime's logits, float32 [..., n, outputs], and their largest difference from PyTorch's.
    """
    parts, differences = [], []
    for rows in batches_of(np.arange(len(samples)), CHECK_BATCH):
        batch = task.batch(samples, rows)
        logits = written(batch)
        with torch.inference_mode():
            theirs = original(spatial(torch.from_numpy(batch))).numpy()
        differences.append(largest_difference(theirs, logits))
        parts.append(logits)
    return np.concatenate(parts, axis=-2), largest(differences)
