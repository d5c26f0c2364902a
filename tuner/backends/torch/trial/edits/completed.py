"""Completing a tail that trained: a module of an edit sets the weights that do not train, from the training samples."""

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.backends.lowering import Completing, CompletingInputs, LoweringError
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.backends.torch.trial.scoring import SCORE_BATCH
from tuner.errors import call_extension
from tuner.plan.trial import TrialPlan
from tuner.task import Task
from tuner.training.schedule import batches_of


def complete(task: Task, tail: nn.Module, plan: TrialPlan, train: TailInputs) -> tuple[str, ...]:
    """Complete the modules of a trained tail; return their notes. Samples come without random changes.

    Raises:
        LoweringError: A module raised.
    """

    def run(module: nn.Module) -> Floats:
        module.eval()
        batches = batches_of(np.arange(len(train.labels)), SCORE_BATCH)
        with torch.inference_mode():
            return np.concatenate([module(spatial(train.read(rows))).numpy() for rows in batches])

    samples = CompletingInputs(run, train.labels, train.is_local, task.targets)
    kind, notes = next(edit.kind for edit in plan.shape if edit.traits.keeps_given), list[str]()
    for module in [one for one in tail.modules() if isinstance(one, Completing)]:
        with torch.no_grad():
            notes += call_extension(LoweringError, kind, module.complete, samples)
    return tuple(notes)
