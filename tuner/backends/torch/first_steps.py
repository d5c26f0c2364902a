"""What the first training step of a fresh process takes: pages of the libraries' code, and the time to load them.

A forked child begins with none of the libraries' code in its own memory, so a small trial is mostly that. How much a
step touches depends on its operators and not on its sizes: one walk from the last block to the first gives the figure
of every tail.
"""

import time

import torch
from torch import nn

from tuner.backends.torch.model.layout import channels_last, spatial
from tuner.backends.torch.model.load import OpenModel
from tuner.backends.torch.task_loss import StepLoss, torch_loss
from tuner.planner.device import FILL_BATCH, FirstSteps
from tuner.process_memory import PeakMeter, return_freed
from tuner.task import Task


def first_steps(task: Task, model: OpenModel, threads: int) -> FirstSteps:
    """Run every block on zeros, forward and backward, with an optimiser, from the last to the first.

    Args:
        task: Its loss.
        model: The model; what it describes of itself is known, and none of its blocks ran in this process.
        threads: Threads to run with.
    """
    torch.set_num_threads(threads)
    return_freed()
    loss: StepLoss | None = torch_loss(task.targets)
    blocks, parts = model.info.blocks, model.parts()
    library_bytes, seconds = list[int](), list[float]()
    resting, slower = PeakMeter().resting, 0.0
    for block, part in zip(reversed(blocks), reversed(parts), strict=True):
        channels_last(part)
        cold, warm = (_timed_step(part, block.in_shape, loss) for _ in range(2))
        slower += max(0.0, cold - warm)
        return_freed()
        library_bytes.insert(0, max(0, PeakMeter().resting - resting))
        seconds.insert(0, slower)
        loss = None
    return FirstSteps(tuple(library_bytes), tuple(seconds))


def _timed_step(part: nn.Module, in_shape: tuple[int, ...], loss: StepLoss | None) -> float:
    """Return the seconds of a step on zeros that moves no weight; `loss` is None but for the last block."""
    started = time.perf_counter()
    outputs = part(spatial(torch.zeros(FILL_BATCH, *in_shape)).requires_grad_())
    if loss is None:
        outputs.backward(torch.ones_like(outputs))
    else:
        loss.mean(outputs, loss.zeros(outputs)).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    trained = [value for value in part.parameters() if value.grad is not None]
    if trained:
        torch.optim.AdamW(trained, lr=0.0, fused=True).step()
    for value in trained:
        value.grad = None
    return time.perf_counter() - started
