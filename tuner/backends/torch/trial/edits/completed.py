"""What an edit's modules do with the training samples when training ends."""

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.lowering import Completing, LoweringError, SolverInputs, TrainingSamples
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.errors import TrainingError, call_extension
from tuner.plan.trial import TrialPlan
from tuner.targets import Targets
from tuner.training.schedule import batches_of


def training_samples(targets: Targets, tail: nn.Module, plan: TrialPlan, train: TailInputs) -> TrainingSamples:
    """Return the samples that a tail was trained on; `train` has them without random changes."""

    def run(module: nn.Module) -> Floats:
        module.eval()
        batches = batches_of(np.arange(len(train.labels)), SCORE_BATCH)
        with torch.inference_mode():
            return np.concatenate([module(spatial(train.read(rows))).numpy() for rows in batches])

    def entering(layer: nn.Module) -> SolverInputs:
        caught: list[torch.Tensor] = []
        handle = layer.register_forward_pre_hook(lambda _, values: caught.append(values[0].flatten(1).clone()))
        try:
            run(tail)
        finally:
            handle.remove()
        features = torch.cat(caught).float().numpy() if caught else np.empty((0, 0), np.float32)
        if len(features) != len(train.labels):
            raise TrainingError(
                f"`entering` takes a layer that the tail applies once to each of {len(train.labels)} samples, but this "
                f"one was applied to {len(features)}: take another one"
            )
        return SolverInputs(features, train.labels, train.is_local, targets, plan.data.weight)

    return TrainingSamples(run, entering, train.labels, train.is_local, targets)


def complete(samples: TrainingSamples, tail: nn.Module, plan: TrialPlan) -> tuple[str, ...]:
    """Complete the modules of a trained tail; return their notes.

    Raises:
        LoweringError: A module raised.
    """
    kind, notes = next(edit.kind for edit in plan.shape if edit.traits.keeps_given), list[str]()
    for module in [one for one in tail.modules() if isinstance(one, Completing)]:
        with torch.no_grad():
            notes += call_extension(LoweringError, kind, module.complete, samples)
    return tuple(notes)
