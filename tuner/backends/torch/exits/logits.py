"""The logits of side heads and of the final head."""

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.torch.exits.inputs import CutInputs
from tuner.backends.torch.model.layout import spatial
from tuner.backends.torch.trial.scoring import SCORE_BATCH, require_finite
from tuner.plan.trial import TrialPlan
from tuner.training.schedule import batches_of


def exit_logits(plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, inputs: CutInputs) -> Floats:
    """Return the logits of every exit and of the final head, float32 [exits + 1, n, outputs], in evaluation mode.

    Args:
        plan: Its exits.
        heads: Their heads.
        final: The final head, and what of the tail is before it.
        inputs: What they read.

    Raises:
        TrainingError: Some are not finite.
    """
    heads.eval()
    read, parts = inputs.reading(plan.answering_cuts), []
    for rows in batches_of(np.arange(len(inputs.labels)), SCORE_BATCH):
        values = read(rows)
        with torch.inference_mode():
            sides = [side(spatial(values[place.block])) for place, side in zip(plan.heads.exits, heads, strict=True)]
            parts.append(torch.stack([*sides, final(spatial(values[plan.answering_cuts[-1]]))], dim=0).numpy())
    outputs = np.concatenate(parts, axis=1)
    require_finite("every exit and the final head", outputs)
    return outputs
