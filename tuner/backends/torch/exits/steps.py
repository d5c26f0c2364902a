"""The training steps of side heads."""

import numpy as np
import torch
from torch import nn

from tuner.arrays import RowNumbers
from tuner.backends.extensions import NOTHING_ADDED, Extensions
from tuner.backends.torch.exits.inputs import CutInputs
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.step.losses import exit_loss
from tuner.backends.torch.step.optimiser import optimiser, set_rate
from tuner.backends.torch.task_loss import StepLoss
from tuner.backends.torch.threads import ThreadChoice, on_fastest_threads
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.plan.trial import TrialPlan
from tuner.training.schedule import batches_of
from tuner.training.steps import Steps

HALF, MAPS = 0.5, 4


class HeadsSteps(Steps):
    """Trains all side heads together: their losses add up, and none depends on another.

    Args:
        plan: Exits, losses and recipe.
        heads: As `tuner.backends.torch.exits.heads.build_heads` returns them, or trained before.
        final: The final head and what of the tail is before it, in evaluation mode: the teacher.
        inputs: What they train on.
        extensions: What plugins add: optimisers.
        loss: The task's loss.
    """

    norms_train = True

    def __init__(
        self,
        plan: TrialPlan,
        heads: nn.ModuleList,
        final: nn.Module,
        inputs: CutInputs,
        extensions: Extensions = NOTHING_ADDED,
        *,
        loss: StepLoss,
    ) -> None:
        self._plan, self._heads, self._loss = plan.heads, heads, loss
        self.threads = ThreadChoice(plan.runtime.threads)
        self._teacher = teacher_logits(plan.answering_cuts[-1], final, inputs)
        self._read = inputs.reading([place.block for place in plan.heads.exits])
        self._labels = inputs.labels
        self._optimiser = optimiser(list(heads.parameters()), plan.recipe, extensions)

    def begin_epoch(self) -> None:
        """Put the heads in training mode."""
        self._heads.train()

    @on_fastest_threads
    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return the sum of the heads' mean losses."""
        set_rate(self._optimiser, rate)
        self._optimiser.zero_grad(set_to_none=True)
        inputs, teacher = self._read(rows), self._teacher[rows]
        labels = torch.from_numpy(np.ascontiguousarray(self._labels[rows]))
        if self._plan.flips:
            inputs = mirrored(inputs, torch.rand(len(rows)) < HALF)
        losses = [
            exit_loss(head(spatial(inputs[place.block])), teacher, labels, self._plan, self._loss)
            for place, head in zip(self._plan.exits, self._heads, strict=True)
        ]
        loss = torch.stack(losses).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimiser.step()
        return float(loss.detach())


def mirrored(inputs: dict[int, torch.Tensor], chosen: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return inputs by cut, the maps [n, C, H, W] of the chosen samples, bool [n], mirrored; vectors as they are."""
    where = chosen[:, None, None, None]
    return {
        cut: torch.where(where, value.flip(-1), value) if value.ndim == MAPS else value for cut, value in inputs.items()
    }


def teacher_logits(cut: int, final: nn.Module, inputs: CutInputs) -> torch.Tensor:
    """Return the final head's logits on all training rows, float32 [n, outputs]: it runs once, not once an epoch."""
    read, batches = inputs.reading([cut]), batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
    with torch.inference_mode():
        parts = [final(spatial(read(rows)[cut])) for rows in batches]
    return torch.cat(parts).clone()
