"""Bundles of the digits that can be trained again, their tail or their exits, made by a fixed plan."""

import shutil
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.pretrained import shared
from tests.sessions import opened
from tuner.backends.base import Backend, Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.bundle.format import PLAN, new_folder, seal, write_input
from tuner.bundle.info import FORMAT
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, EditTraits, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan, normal_form
from tuner.runtime import ExitsTrainer
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info
from tuner.task.spec import Pretrain

BATCH = 16


def trainable_bundle(
    task: Task, folder: Path, split: int = 1, *, shape: tuple[TailEdit, ...] = (), **recipe: Any
) -> Path:
    """Train the tail from a block on, and export it with what `Trainer` needs."""
    cache = CachePlan("cache", 8) if split else CachePlan()
    return _made(task, folder, split, cache, HeadsPlan(), shape, **recipe)


def solved_bundle(folder: Path) -> Path:
    """Return a copy of a bundle of the digits whose head is solved for."""

    def make(made: Path) -> None:
        edit = TailEdit.of("closed-form", EditTraits(solves=True))
        trainable_bundle(digits(), made, 3, shape=(edit,))

    return Path(shutil.copytree(shared("solved", make) / "bundle", folder / "bundle"))


def known_digits() -> Task:
    """Return the digits of a user of whom the model knows every class."""
    made = digits()
    if made.global_ is None:
        raise ValueError("the digits have global data")
    known = replace(made, local=replace(made.global_, test=None), local_labels=made.head_rows)
    return replace(known, model=replace(made.model, pretrain=Pretrain(epochs=4, learning_rate=3e-3)))


def trainable_exits(task: Task, folder: Path, heads: HeadsPlan) -> Path:
    """Train two exits, and export them with what `ExitsTrainer` needs."""
    exits = (Exit(1, 0), Exit(2, 0)) if heads.ridge else (Exit(1, 8), Exit(2, 16))
    given = replace(heads, exits=exits, tolerance=0.5 if heads.ridge else 0.02)  # linear exits of digits are weak
    return _made(task, folder, 3, CachePlan("cache", 8), given, epochs=8, learning_rate=1e-2)


def leaving_at(trainer: ExitsTrainer, exit_: int) -> ExitsTrainer:
    """Return a copy of the trainer, of which every sample leaves at one exit."""
    made, count = copy(trainer), len(trainer.thresholds)
    made.policy = replace(trainer.policy, thresholds=(1.0,) * exit_ + (0.0,) * (count - exit_))
    return made


def _made(
    task: Task,
    folder: Path,
    split: int,
    cache: CachePlan,
    heads: HeadsPlan,
    shape: tuple[TailEdit, ...] = (),
    **recipe: Any,
) -> Path:
    backend = TorchBackend()
    model = opened(backend, task).model
    said = RecipePlan(epochs=6, batch_size=BATCH, learning_rate=3e-3)
    plan = normal_form(
        TrialPlan(
            model,
            task_info(task),
            data=DataPlan(0.3),
            split=split,
            shape=shape,
            heads=heads,
            cache=cache,
            recipe=replace(said, **recipe),
            runtime=RuntimePlan("torch", 1),
        )
    )
    return exported_bundle(task, folder, plan, backend, Store(folder / "store"))


def exported_bundle(
    task: Task, folder: Path, plan: TrialPlan, backend: Backend, store: Store, *, trainable: bool = True
) -> Path:
    """Carry a plan out, and export it."""
    weights, out = folder / "trained.safetensors", folder / "bundle"
    outcome = opened(backend, task).train(Trial(plan, 1, store, weights))
    with new_folder(out) as part:
        exported = opened(backend, task).export(plan, weights, part, trainable=trainable)
        (part / PLAN).write_text(to_toml(plan), encoding="utf-8")
        write_input(part, task.at(plan.size).input)
        content = {
            "format": FORMAT,
            "name": task.name,
            "labels": task.labels,
            "input": asdict(task.at(plan.size).input),
            "input_shape": task.at(plan.size).input_shape,
            "loss": task.loss,
            **({} if task.scale is None else {"targets": asdict(task.scale)}),
            "sentence": describe(plan),
            **exported.sections,
            "parent": None,
            "scores": {"trial": outcome.values, "untouched": {}, "from_pixels": exported.checks},
        }
        seal(part, content)
    return out
