"""Training steps by ONNX Runtime: PyTorch traces and exports the tail's step, and runs none of its own."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tuner.arrays import RowNumbers
from tuner.backends.torch.onnx.write import write
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.trial.edits.evolving import require_traceable
from tuner.backends.torch.trial.opened import TailTraining, TrialSteps
from tuner.ort.training_step import SessionSteps, StepSession, TrainingRows


class OrtSteps(TrialSteps):
    """Trains a tail in the ordinary onnxruntime; the tail's modules have the weights between epochs."""

    def __init__(self, training: TailTraining) -> None:
        require_traceable(training.tail)
        self._tail, inputs, recipe = training.tail, training.inputs, training.plan.recipe
        started = time.perf_counter()
        self.example = inputs.read(np.zeros(1, np.int64))
        step = trace(
            self._tail,
            recipe,
            loss=training.loss,
            input_shape=self.example.shape[1:],
            outputs=len(training.task.labels),
            batch_size=recipe.batch_size,
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.onnx"
            write(step, path)
            size = path.stat().st_size
            state = {name: value.numpy(force=True) for name, value in self._tail.state_dict().items()}
            self._session = StepSession(path, state, training.plan.runtime.threads, training.seed)
        seconds = time.perf_counter() - started
        self.notes = (f"trained by ONNX Runtime: the step was traced and written in {seconds:.1f} s, {size} bytes",)
        rows = TrainingRows(lambda batch: inputs.read(batch).numpy(), inputs.labels, inputs.teacher, inputs.weights)
        self._steps = SessionSteps(self._session, rows, recipe)
        self.norms_train = self._steps.norms_train

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return its mean loss."""
        return self._steps.step(rows, rate)

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state, by its names in the step, and the number of steps."""
        held, steps = self._session.state()
        return {"held": {name: torch.from_numpy(value) for name, value in held.items()}, "steps": steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, with the weights of then."""
        self._session.restore({name: value.numpy() for name, value in state["held"].items()}, state["steps"])

    def end_epoch(self) -> None:
        """Copy the trained weights into the tail, to be scored."""
        state = self._tail.state_dict()
        with torch.no_grad():
            for name, value in self._session.weights().items():
                state[name].copy_(torch.from_numpy(value))
