"""Bundles of the digits that can be trained again, their tail or their exits, made by a fixed plan."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tuner.backends.torch import TorchBackend
from tuner.heads import Exit, HeadsPlan
from tuner.plan import CachePlan, DataPlan, RecipePlan, RuntimePlan, TrialPlan, normal_form
from tuner.runtime.bundle import FORMAT, PLAN, placed, seal
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.digits import digits
from tuner.task.spec import Pretrain
from tuner.tune import task_info

BATCH = 16


def trainable_bundle(task: Task, folder: Path, split: int = 1, **recipe: Any) -> Path:
    """Train the tail from a block on, and export it with what `Trainer` needs."""
    cache = CachePlan("cache", 8) if split else CachePlan()
    return _made(task, folder, split, cache, HeadsPlan(), **recipe)


def known_digits() -> Task:
    """Return the digits of a user of whom the model knows every class."""
    made = digits()
    if made.global_ is None:
        raise ValueError("the digits have global data")
    known = replace(made, local=replace(made.global_, test=None), local_labels=made.head_rows)
    return replace(known, model=replace(made.model, pretrain=Pretrain(epochs=4, learning_rate=3e-3)))


def trainable_exits(task: Task, folder: Path, heads: HeadsPlan) -> Path:
    """Train two exits, and export them with what `ExitsTrainer` needs."""
    given = replace(heads, exits=(Exit(1, 8), Exit(2, 16)), tolerance=0.02)
    return _made(task, folder, 3, CachePlan("cache", 8), given, epochs=8, learning_rate=1e-2)


def _made(task: Task, folder: Path, split: int, cache: CachePlan, heads: HeadsPlan, **recipe: Any) -> Path:
    backend = TorchBackend()
    model = backend.describe(task)
    said = RecipePlan(epochs=6, batch_size=BATCH, learning_rate=3e-3)
    plan = normal_form(
        TrialPlan(
            model,
            task_info(task),
            data=DataPlan(0.3),
            split=split,
            heads=heads,
            cache=cache,
            recipe=replace(said, **recipe),
            runtime=RuntimePlan("torch", 1),
        )
    )
    weights, out = folder / "trained.safetensors", folder / "bundle"
    outcome = backend.train(task, plan, 1, Store(folder / "store"), weights)
    with placed(out) as part:
        checked = backend.export_trainable(task, plan, weights, part)
        (part / PLAN).write_text(plan.to_toml(), encoding="utf-8")
        beside: dict[str, Any] = {name: checked.pop(name) for name in ("train", "exits") if name in checked}
        content = {
            "format": FORMAT,
            "name": task.name,
            "labels": task.labels,
            "input": asdict(task.input),
            "input_shape": task.input_shape,
            "loss": task.loss,
            "sentence": plan.say(),
            **beside,
            "parent": None,
            "scores": {"trial": outcome.values, "untouched": {}, "from_pixels": checked},
        }
        seal(part, content)
    return out
