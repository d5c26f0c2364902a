"""Side heads in closed form: no steps, one solution for each."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats, RowNumbers
from tuner.backends.torch.exits.inputs import CutInputs, ExitInputs
from tuner.backends.torch.exits.steps import teacher_logits
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.plan.trial import TrialPlan
from tuner.ridge.personal import personal_head
from tuner.ridge.sums import Sums
from tuner.runtime.train.exit_targets import linear_features, regressed
from tuner.training.schedule import batches_of


def solve_heads(
    plan: TrialPlan,
    heads: nn.ModuleList,
    final: nn.Module,
    inputs: ExitInputs,
    folds: RowNumbers,
    begun: Sequence[Sums],
) -> Floats:
    """Set the weights of all side heads.

    Args:
        plan: Exits, what they answer, and the penalty.
        heads: As `tuner.backends.torch.exits.heads.build_heads` returns them, of linear layers.
        final: The final head and what of the tail is before it, in evaluation mode: the teacher.
        inputs: What is regressed on, the user's samples first; and what thresholds are set on.
        folds: Fold of each of the user's samples.
        begun: Sums that each exit begins with; none where they begin with nothing.

    Returns:
        Logits of every exit for the user's samples, each by the exit that is solved without the sample's fold, float32
        [exits, own, outputs].

    Raises:
        TrainingError: Features are not finite, or there are too many of a sample.
    """
    learned, unseen = inputs.train, []
    teacher = teacher_logits(plan.answering_cuts[-1], final, learned).numpy()
    targets, truth = regressed(plan.heads, teacher, learned.labels, kind=plan.task.targets)
    rows = np.arange(len(folds))
    given = begun or (None,) * len(heads)
    for place, head, own in zip(plan.heads.exits, heads, given, strict=True):
        exact = _features(place.block, inputs.calibration) if plan.heads.out_of_fold else None
        features = _features(place.block, learned)
        solved = personal_head(
            features, targets, truth, rows, folds, plan.heads.ridge, seen_as=exact, kind=plan.task.targets, given=own
        )
        unseen.append(solved.unseen.astype(np.float32))
        weight, bias = head.parameters()  # of the one layer that has any
        with torch.no_grad():
            weight.copy_(torch.from_numpy(solved.head.weight))
            bias.copy_(torch.from_numpy(solved.head.bias))
    return np.stack(unseen)


def _features(cut: int, inputs: CutInputs) -> Floats:
    """Return what a linear head reads of all rows, float32 [n, features]."""
    read, batches = inputs.reading([cut]), batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
    return np.concatenate([linear_features(read(rows)[cut].float().numpy()) for rows in batches])
