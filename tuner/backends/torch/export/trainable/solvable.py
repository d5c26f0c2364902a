"""Write what a bundle needs to solve for its head again without PyTorch.

Into ``train/`` go the plan's global samples as stored features, global samples that say what was forgotten, the given
head, and the user's samples as codes of their features: a sample that is forgotten takes its codes with it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tuner.backends.lowering import Solver
from tuner.backends.torch.export.trainable.features import Features
from tuner.backends.torch.features.selection import Selection, training_selections
from tuner.backends.torch.trial.edits.edited import edited
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import MODEL
from tuner.bundle.info import Section, TrainInfo, TrainKind
from tuner.errors import BundleError
from tuner.ort.session import Session
from tuner.plan.trial import TrialPlan
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.runtime.train.solved import SolvedFile

OWN = "this tail is solved for by its plugin alone: export without --trainable"


def write_solvable(
    opened: OpenTask, plan: TrialPlan, given: Mapping[str, torch.Tensor], mixed: Sequence[Selection], folder: Path
) -> dict[str, Any]:
    """Write ``train/`` next to a model whose head was solved for; see `tuner.backends.torch.export.whole.export`.

    Args:
        opened: The task, its model, and what plugins add.
        plan: What was solved.
        given: The tail's weights before it was solved, by name.
        mixed: The global samples that it was solved from.
        folder: The bundle's.

    Returns:
        The section of ``bundle.json`` about it.

    Raises:
        BundleError: A device cannot solve this tail.
    """
    edits = edited(opened.model, plan, opened.extensions)
    solver = next((module for module in edits.tail.modules() if isinstance(module, Solver)), None)
    shape, state = plan.model.blocks[plan.split].in_shape, dict(given)
    if solver is None or solver.union is None or len(shape) != 1 or len(state) != 2 or not plan.split:  # noqa: PLR2004 - weight and bias
        raise BundleError(OWN)
    (folder / Section.TRAIN).mkdir(mode=0o700)
    task, session = opened.task, Session(folder / MODEL, plan.runtime.threads)
    features = Features(task, plan, session.features)
    replay, checked = features.save(mixed, folder)
    local = training_selections(task, plan)[0]
    own = features.of(local)
    step = step_of(np.concatenate([own, replay.read(np.arange(len(replay)))]))
    weight, bias = (value.double().numpy() for value in state.values())
    SolvedFile(LinearHead(weight, bias), coded(own, step), local.labels(), step, solver.union).save(folder)
    return TrainInfo(
        kind=TrainKind.CLOSED_FORM,
        batch_size=plan.recipe.batch_size,
        replay_samples=len(replay),
        check_samples=checked,
        bits=replay.codec.bits,
        bytes=sum(path.stat().st_size for path in (folder / Section.TRAIN).iterdir()),
        weights=tuple(state),
        cut=plan.split,
    ).to_dict()
