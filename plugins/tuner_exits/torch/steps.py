"""The training of side heads: by steps, or in closed form."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.backends.extensions import NOTHING_ADDED, Extensions
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.step.losses import exit_loss
from tuner.backends.torch.step.optimiser import clip_gradients, optimiser, set_rate
from tuner.backends.torch.task_loss import StepLoss
from tuner.backends.torch.threads import ThreadChoice
from tuner.plan.trial import TrialPlan
from tuner.ridge.personal import gated_head, personal_head
from tuner.ridge.sums import Sums
from tuner.runtime.train.exit_targets import linear_features, regressed
from tuner.training.steps import Steps
from tuner_exits.torch.inputs import CutInputs, cut_of

HALF, MAPS = 0.5, 4


class HeadsSteps(Steps):
    """Trains all side heads together: their losses add up, and none depends on another.

    The final head, with what of the tail is before it, is in evaluation mode: the teacher.
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
        self._plan, self._heads, self._loss, self._recipe = plan.heads, heads, loss, plan.recipe
        self.threads = ThreadChoice(plan.runtime.threads)
        self._teacher = teacher_logits(plan.answering_cuts[-1], final, inputs)
        self._read = inputs.reading([place.block for place in plan.heads.exits])
        self._labels = inputs.labels
        self._optimiser = optimiser(list(heads.parameters()), plan.recipe, extensions)

    def begin_epoch(self) -> None:
        """Put the heads in training mode."""
        self._heads.train()

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return the sum of the heads' mean losses."""
        with self.threads:
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
            for head in self._heads:
                clip_gradients(head.parameters(), self._recipe)
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
    with torch.inference_mode():
        parts = [final(spatial(read[cut])) for _, read in inputs.batches([cut])]
    return torch.cat(parts).clone()


class Unseen(NamedTuple):
    """What exits in closed form answer to samples that they are solved without.

    Attributes:
        own: Logits of the user's samples, float32 [exits, own, outputs].
        known: Of exits with gates, logits of the mixed-in samples, those of the final head last, float32 [exits + 1,
            mixed, outputs]; and their labels.
    """

    own: Floats
    known: tuple[Floats, Labels] | None


def solve_heads(
    plan: TrialPlan,
    heads: nn.ModuleList,
    final: nn.Module,
    learned: CutInputs,
    folds: RowNumbers,
    begun: Sequence[Sums],
    answered: CutInputs | None = None,
) -> Unseen:
    """Solve for all side heads in closed form.

    Args:
        plan: Exits, what they answer, and the penalty.
        heads: As `tuner_exits.torch.heads.build_heads` returns them, of linear layers.
        final: The final head and what of the tail is before it, in evaluation mode: the teacher.
        learned: What is regressed on, the user's samples first.
        folds: Fold of each of the user's samples.
        begun: Sums that each exit begins with; none where they begin with nothing.
        answered: What thresholds are set on; the user's samples as they are learned from where it is None.

    Returns:
        What every exit answers, of the user's samples without their fold.

    Raises:
        TrainingError: Features are not finite, or there are too many of a sample.
    """
    teacher, kind = teacher_logits(plan.answering_cuts[-1], final, learned).numpy(), plan.task.targets
    targets, truth = regressed(plan.heads, teacher, learned.labels, kind=kind)
    rows, ridge, unseen, known = np.arange(len(folds)), plan.heads.ridge, [], list[Floats]()
    for place, head, own in zip(plan.heads.exits, heads, begun or (None,) * len(heads), strict=True):
        exact = None if answered is None else _features(cut_of(place), answered)
        features = _features(cut_of(place), learned)
        if plan.heads.gated:
            solved = gated_head(features, truth, rows, folds, targets.shape[1], seen_as=exact)
        else:
            solved = personal_head(features, targets, truth, rows, folds, ridge, seen_as=exact, kind=kind, given=own)
        known += [solved.known.astype(np.float32)] if solved.known is not None else []
        unseen.append(solved.unseen.astype(np.float32))
        weight, bias = head.parameters()  # of the one layer that has any
        with torch.no_grad():
            weight.copy_(torch.from_numpy(solved.head.weight))
            bias.copy_(torch.from_numpy(solved.head.bias))
    if not plan.heads.gated:
        return Unseen(np.stack(unseen), None)
    return Unseen(np.stack(unseen), (np.stack([*known, teacher[len(rows) :]]), truth[len(rows) :]))


def _features(cut: int, inputs: CutInputs) -> Floats:
    """Return what a linear head reads of all rows, float32 [n, features]."""
    return np.concatenate([linear_features(read[cut].float().numpy()) for _, read in inputs.batches([cut])])
