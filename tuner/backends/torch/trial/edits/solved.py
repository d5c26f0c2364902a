"""A tail that is solved for: one pass through its samples, and then the weights at once."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tuner.arrays import Floats, RowNumbers
from tuner.backends.extensions import Extensions
from tuner.backends.lowering import LoweringError, Solver, SolverInputs, TrainingSamples
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.opened import TailTraining, TrialSteps
from tuner.bundle.tensors import open_tensors
from tuner.distribution import PLUGINS, offered
from tuner.errors import BundleError, call_extension
from tuner.plan.trial import TrialPlan
from tuner.ridge.union import UnionSettings

#: Key of what the head was solved with, in the metadata of a trial's weights.
UNION = "union"


class SolvedSteps(TrialSteps):
    """Shows every sample to the tail once, and lets its solver set the weights when the epoch ends.

    A step's loss is that of the weights before.
    """

    def __init__(self, training: TailTraining) -> None:
        self._kind = next(edit.kind for edit in training.plan.shape if edit.traits.solves)
        self._tail, self._inputs, self._known_weight = training.tail, training.inputs, training.plan.data.weight
        solver = next((module for module in self._tail.modules() if isinstance(module, Solver)), None)
        if solver is None:
            rule = "with EditTraits(solves=True) it must return a `Solver`, but no module is one"
            raise LoweringError(self._kind, rule)
        self._solver, self._loss = solver, torch_loss(training.task.targets)
        self._features: dict[int, Floats] = {}
        self.example = spatial(self._inputs.read(np.arange(1)))

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
        self._outputs = logits.shape[1]
        features = caught[-1].flatten(1).float().numpy()
        self._features |= dict(zip(rows.tolist(), features, strict=True))
        return float(self._loss.mean(logits, self._inputs.labels_of(rows)))

    def end_epoch(self) -> None:
        """Solve, from the samples in the order of their rows."""
        rows = np.array(sorted(self._features), np.int64)
        features = np.stack([self._features[row] for row in rows.tolist()])
        labels, is_local = self._inputs.labels[rows], self._inputs.is_local[rows]
        samples = SolverInputs(features, labels, is_local, self._loss.targets, self._known_weight)
        with torch.no_grad():
            call_extension(LoweringError, self._kind, self._solver.solve, samples)
        if self._solver.union is not None:
            self.metadata = {UNION: json.dumps(asdict(self._solver.union))}
        if self._solver.left_out is not None:
            own = samples.labels[samples.is_local]
            self.left_out = self._checked(np.asarray(self._solver.left_out, np.float32), len(own)), own

    def finish(self, samples: TrainingSamples) -> tuple[str, ...]:  # noqa: ARG002 - it has solved from them
        """Return what the solver has chosen."""
        return self._solver.notes

    def _checked(self, logits: Floats, count: int) -> Floats:
        shape = (count, self._outputs)
        if logits.shape != shape or not np.isfinite(logits).all():
            rule = f"`left_out` must be finite, {list(shape)}, one row for each local sample, got {list(logits.shape)}"
            raise LoweringError(self._kind, rule)
        return logits

    def state(self) -> dict[str, object]:
        """Return what was chosen: an epoch solves from its own samples alone."""
        return dict(self.metadata)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with what was chosen."""
        self.metadata = dict(state)


def solver_of(added: Extensions, plan: TrialPlan) -> str | None:
    """Return the name of the plugin that solves for a plan's head from sums; None where none does.

    Raises:
        BundleError: A device would not find it: it is not installed.
    """
    kind = next(edit.kind for edit in plan.shape if edit.traits.solves)
    if kind not in added.solvers:
        return None
    name = added.owners["tail edit", kind][0]
    if name not in offered(PLUGINS):
        raise BundleError(
            f"--trainable is for heads that installed plugins solve for, and {name!r} is a file: install it, as "
            "`tuner plugins new` shows, or export without --trainable"
        )
    return name


def solved_with(weights: Path) -> UnionSettings:
    """Return what the head of a finished trial, which wrote these weights, was solved with.

    Raises:
        BundleError: A device cannot solve for it.
    """
    with open_tensors(weights) as file:
        written = (file.metadata() or {}).get(UNION)
    if written is None:
        raise BundleError(
            "this tail is solved for by its plugin alone, which does not offer `tuner_solvers`: export without "
            "--trainable"
        )
    return UnionSettings.of(json.loads(written))
