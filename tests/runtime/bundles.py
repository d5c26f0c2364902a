"""A bundle of the digits that can be trained again, made by a fixed plan."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.backends.torch import TorchBackend
from tuner.plan import CachePlan, DataPlan, RecipePlan, RuntimePlan, TrialPlan, normal_form
from tuner.runtime.bundle import FORMAT, PLAN, placed, seal
from tuner.store.store import Store
from tuner.task import Task
from tuner.tune import task_info

BATCH = 16


def trainable_bundle(task: Task, folder: Path, split: int = 1, **recipe: Any) -> Path:
    """Train the tail from a block on, and export it with what `Trainer` needs."""
    backend = TorchBackend()
    model = backend.describe(task)
    said = RecipePlan(epochs=6, batch_size=BATCH, learning_rate=3e-3)
    plan = normal_form(
        TrialPlan(
            model,
            task_info(task),
            data=DataPlan(0.3),
            split=split,
            cache=CachePlan("cache", 8) if split else CachePlan(),
            recipe=RecipePlan(**(asdict(said) | recipe)),
            runtime=RuntimePlan("torch", 1),
        )
    )
    weights, out = folder / "trained.safetensors", folder / "bundle"
    outcome = backend.train(task, plan, 1, Store(folder / "store"), weights)
    with placed(out) as part:
        checked = backend.export_trainable(task, plan, weights, part)
        (part / PLAN).write_text(plan.to_toml(), encoding="utf-8")
        content = {
            "format": FORMAT,
            "name": task.name,
            "labels": task.labels,
            "input": asdict(task.input),
            "input_shape": task.input_shape,
            "loss": task.loss,
            "sentence": plan.say(),
            "train": checked.pop("train"),
            "parent": None,
            "scores": {"trial": outcome.values, "untouched": {}, "from_pixels": checked},
        }
        seal(part, content)
    return out
