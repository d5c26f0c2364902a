"""Training by ONNX Runtime in a trial: PyTorch traces and exports the tail's step, and runs none of its own."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tuner.backends.base import Report, silent
from tuner.backends.torch.lower import write
from tuner.backends.torch.step import trace
from tuner.backends.torch.training import Source
from tuner.plan import TrialPlan
from tuner.runtime.step import Rows, StepSession, train
from tuner.task import Task


class OrtLoop:
    """Like `tuner.backends.torch.training.Loop`, by ONNX Runtime.

    Attributes:
        notes: Who ran the steps, and what it took to write them.
        example: One input of the tail, float32 [1, ...].
    """

    notes: tuple[str, ...]

    def __init__(self, task: Task, plan: TrialPlan, tail: nn.Module, rows: Source, seed: int) -> None:
        self._tail = tail
        self._report: Report = silent
        started = time.perf_counter()
        self.example = rows.read(np.zeros(1, np.int64))
        step = trace(
            tail,
            plan.recipe,
            loss=task.loss,
            input_shape=self.example.shape[1:],
            outputs=len(task.labels),
            batch_size=plan.recipe.batch_size,
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.onnx"
            write(step, path)
            size = path.stat().st_size
            state = {name: value.numpy(force=True) for name, value in tail.state_dict().items()}
            self._session = StepSession(path, state, plan.runtime.threads, seed)
        took = time.perf_counter() - started
        self.notes = (f"trained by ONNX Runtime: the step was traced and written in {took:.1f} s, {size} bytes",)
        given = Rows(lambda batch: _array(rows.read(batch)), rows.labels)
        self._epochs: Iterator[tuple[float, bool]] = train(self._session, given, plan.recipe, seed, self._watch)

    def epoch(self, epoch: int, report: Report) -> tuple[float, bool]:  # noqa: ARG002 - they come in order
        """Train one epoch; return the mean loss, and whether it was told to stop before the end."""
        self._report = report
        found = next(self._epochs)
        state = self._tail.state_dict()
        with torch.no_grad():
            for name, value in self._session.weights().items():
                state[name].copy_(torch.from_numpy(value))
        return found

    def evolve(self, epoch: int, room: int | None) -> dict[str, float]:  # noqa: ARG002 - a written step does not change
        """Return nothing: the backend refuses tails that change while they train."""
        return {}

    def finish(self) -> tuple[str, ...]:
        """Return nothing: the weights are in the tail."""
        return ()

    def _watch(self, step: int, steps: int) -> bool:
        return self._report({"step": step, "steps": steps})


def _array(value: torch.Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = value.numpy()
    return array
