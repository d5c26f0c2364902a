"""Training steps by the planned executor: the tail's step is traced once and run in the planned order."""

import gc
import time
from collections.abc import Mapping
from typing import Any

import torch

from tuner.arrays import RowNumbers
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.trial.edits.evolving import require_traceable
from tuner.backends.torch.trial.opened import TailTraining
from tuner.training.schedule import batches_of
from tuner_planned.torch.bound_step import BoundStep, bound, held_by
from tuner_planned.torch.program import program
from tuner_planned.torch.step_plan import steps_of


class PlannedSteps(EagerSteps):
    """`EagerSteps` run by the planned executor, which overwrites the tail's weights where they lie.

    Batches of fewer samples are filled up with samples of weight zero.
    """

    def __init__(self, training: TailTraining) -> None:
        require_traceable(training.tail)
        super().__init__(training)
        started = time.perf_counter()
        steps = steps_of(training.tail, training.plan, training.loss)
        programs = [program(step) for step in steps]
        held = held_by(steps[-1], training.tail)
        self._ports = [
            [port for name in code.batch for port in step.inputs if port.name == name]
            for code, step in zip(programs, steps, strict=True)
        ]
        self._states = {port.name: held[port.name] for port in steps[-1].inputs if port.kind == "state"}
        self._sums = [value for name, value in held.items() if name.startswith("sum.") and len(steps) > 1]
        del steps
        gc.collect()  # graphs refer to themselves in circles, and would stay in memory next to the steps
        self._bound: list[BoundStep] = [bound(code, held) for code in programs]
        self._part_size = self._ports[0][0].shape[0]
        self._steps_done = 0
        seconds = time.perf_counter() - started
        self.notes = (f"run by the planned executor: the step was traced and planned in {seconds:.1f} s",)

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return its mean loss."""
        with self.threads:
            self._steps_done += 1
            for total in self._sums:
                total.zero_()
            loss, parts = 0.0, batches_of(rows, self._part_size)
            for number, part in enumerate(parts):
                which = -1 if number == len(parts) - 1 else 0  # all parts but the last add their gradients to sums
                loss += float(self._bound[which](*self._arguments(which, part, rows, rate)))
            return loss

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state, by its names in the step, and the number of steps."""
        return {"held": {name: value.clone() for name, value in self._states.items()}, "steps": self._steps_done}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, on a tail that has its weights."""
        for name, value in self._states.items():
            value.copy_(state["held"][name])
        self._steps_done = state["steps"]

    def _arguments(self, which: int, part: RowNumbers, batch: RowNumbers, rate: float) -> list[torch.Tensor]:
        """Return a step's arguments, in its order, for a part of a batch."""
        weights = torch.zeros(self._part_size)
        weights[: len(part)] = self._inputs.weights_of(part)
        numbers = {
            "sample_weight": weights,
            "share": torch.tensor(self._inputs.share(part, batch)),
            "learning_rate": torch.tensor(float(rate)),
            "step_count": torch.tensor(float(self._steps_done)),
        }
        arguments = []
        for port in self._ports[which]:
            if port.kind == "input":
                arguments.append(spatial(_filled(self._inputs.read(part), self._part_size)))
            elif port.kind == "label":
                arguments.append(_filled(self._inputs.labels_of(part), self._part_size))
            elif port.kind == "teacher" and (teacher := self._inputs.teacher_logits(part)) is not None:
                arguments.append(_filled(teacher, self._part_size))
            elif port.kind == "noise":
                arguments.append(torch.rand(port.shape))
            else:
                arguments.append(numbers[port.kind])
        return arguments


def _filled(value: torch.Tensor, size: int) -> torch.Tensor:
    """Return a batch of `size` samples: those given, then the first one again and again."""
    missing = size - len(value)
    return torch.cat([value, value[:1].expand(missing, *value.shape[1:])]) if missing else value
