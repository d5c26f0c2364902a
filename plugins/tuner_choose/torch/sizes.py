"""How large networks are that are on this machine, and how much they compute."""

import numpy as np
import torch

from tuner.errors import TaskError
from tuner.task import InputSpec, ModelSpec, Task
from tuner.task.data.samples import ArraySamples
from tuner.task.task import Domain
from tuner_choose.torch.passes import flops_of, opened


def sizes(model: ModelSpec, side: int) -> tuple[int, int]:
    """Return the number of a network's parameters, and the FLOPs of a prediction of a picture.

    Args:
        model: The network; nothing of it is fetched.
        side: Side of the picture, in pixels.

    Raises:
        TaskError: It cannot be opened, or does not take such a picture.
    """
    spec = InputSpec("images", side, side, (0.5,) * 3, (0.25,) * 3)
    pixels = np.random.default_rng(0).integers(0, 255, (4, side, side, 3), np.uint8)
    samples = ArraySamples(pixels, np.array([0, 1, 0, 1], np.int64), spec, "random pixels")
    task = Task("sizes", model, spec, "single-label", Domain(samples, samples), None, ("a", "b"), (), (0, 1))
    sample = torch.from_numpy(task.batch(samples, [0]))
    network = opened(task, sample)
    try:
        return sum(value.numel() for value in network.parameters()), flops_of(network, sample)
    except RuntimeError as error:
        raise TaskError(f"{model.factory} does not take pictures of {side} pixels: {error}") from None
