"""A tail that is solved for: one pass through its samples, and then the weights at once."""

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats, RowNumbers
from tuner.backends.lowering import LoweringError, Solver, SolverInputs
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.steps import TrialSteps
from tuner.errors import TunerError, first_line, place_of
from tuner.plan.trial import TrialPlan
from tuner.task import Task


class SolvedSteps(TrialSteps):
    """Shows every sample to the tail once, and lets its solver set the weights when the epoch ends.

    A step's loss is that of the weights before.

    Args:
        task: Its loss.
        plan: For messages.
        tail: What is solved for; a module in it is a `Solver`.
        inputs: What it reads.

    Raises:
        LoweringError: No module of the tail is a solver.
    """

    def __init__(self, task: Task, plan: TrialPlan, tail: nn.Module, inputs: TailInputs) -> None:
        kind = next(edit.kind for edit in plan.shape if edit.traits.solves)
        solver = next((module for module in tail.modules() if isinstance(module, Solver)), None)
        if solver is None:
            raise LoweringError(kind, "with EditTraits(solves=True) it must return a `Solver`, but no module is one")
        self._tail, self._solver, self._inputs, self._kind = tail, solver, inputs, kind
        self._loss = torch_loss(task.targets)
        self._features: dict[int, Floats] = {}
        self.example = spatial(inputs.read(np.arange(1)))
        self._losses = 0

    def begin_epoch(self) -> None:
        """Forget what an epoch before was solved from."""
        self._features = {}

    def step(self, rows: RowNumbers, rate: float) -> float:  # noqa: ARG002 - nothing is stepped
        """Keep what enters the solver's layer of one batch; return the mean loss of the weights before."""
        caught: list[torch.Tensor] = []
        handle = self._solver.layer.register_forward_pre_hook(lambda _, values: caught.append(values[0]))
        try:
            with torch.no_grad():
                logits = self._tail.eval()(spatial(self._inputs.read(rows)))
        finally:
            handle.remove()
        features = caught[-1].flatten(1).float().numpy()
        self._features |= dict(zip(rows.tolist(), features, strict=True))
        return float(self._loss.mean(logits, torch.from_numpy(np.ascontiguousarray(self._inputs.labels[rows]))))

    def end_epoch(self) -> None:
        """Solve, from the samples in the order of their rows.

        Raises:
            LoweringError: The solver raised.
        """
        rows = np.array(sorted(self._features), np.int64)
        features = np.stack([self._features[row] for row in rows.tolist()])
        samples = SolverInputs(features, self._inputs.labels[rows], self._inputs.is_local[rows], self._loss.targets)
        try:
            with torch.no_grad():
                self._solver.solve(samples)
        except TunerError:
            raise
        except Exception as error:  # a plugin's solver may raise anything
            raise LoweringError(self._kind, f"{first_line(error)}{place_of(error)}") from error

    def state(self) -> dict[str, object]:
        """Return nothing: an epoch solves from its own samples alone."""
        return {}

    def restore(self, state: object) -> None:
        """Continue: nothing is kept between epochs."""
