"""What the benchmarks of growth share: arms that train through the backend, and what is told of each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import nn

from benchmarks.lib.report import Row
from benchmarks.lib.setup import open_session
from tuner.backends.base import Trial
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.model.resize import install
from tuner.plan.parts import CachePlan, DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.trial import Outcome
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info
from tuner_growth import Growth, Knobs
from tuner_growth.edit import Edit
from tuner_growth.torch.tail import refresh
from tuner_growth.torch.widths import find, selected, traced

WEIGHTS = "weights.safetensors"
#: Time counts to the full network's accuracy less this.
NEAR = 0.005
#: Epochs at the end that a batch's time is the median of.
LAST = 3


def trained(
    task: Task,
    edit: Edit | None,
    recipe: RecipePlan,
    seed: int,
    folder: Path,
    *,
    mode: str = "scratch",
    alpha: float = 0,
    augment: float = 0,
) -> Outcome:
    """Carry one arm out, in a folder of its own; it is scored on the local validation samples after every epoch.

    Args:
        task: With those samples.
        edit: How it grows; None trains the model as it is.
        recipe: How it trains; its patience is set to never stop.
        seed: Of the training.
        folder: Where its weights go.
        mode: Of growth.
        alpha: Fraction of the global data that is mixed in.
        augment: Strength of the task's random changes.
    """
    backend = TorchBackend()
    recipe = replace(recipe, patience=recipe.epochs)
    model, cache = open_session(backend, task).model, CachePlan(augment=augment)
    plan = TrialPlan(model, task_info(task), data=DataPlan(alpha), cache=cache, recipe=recipe)
    plan = Growth().apply(plan, Knobs("none" if edit is None else mode, edit))
    return open_session(backend, task).train(Trial(plan, seed, Store(folder / "store"), folder / WEIGHTS))


def final_widths(outcome: Outcome) -> dict[str, int]:
    """Return the widths after the last decision, by module."""
    logged = [(name, value) for epoch in outcome.epochs for name, value in epoch.items() if name.endswith(".width")]
    return {name.removesuffix(".width"): int(value) for name, value in logged}


def starting_from(task: Task, model: nn.Module, path: Path) -> Task:
    """Write a network's weights; return the task that starts from them."""
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return replace(task, model=replace(task.model, weights=str(path), pretrain=None, head=task.labels))


def fresh(task: Task, sizes: dict[str, int], seed: int, path: Path) -> Task:
    """Return the task whose network starts from the fresh weights that growth starts from, at some widths.

    Args:
        task: With a network of full size.
        sizes: Widths by module; those left out have their full size.
        seed: Of the weights.
        path: Where the weights are written.
    """
    model = load(task).model
    body = traced(model)
    for width in find(body).growable:
        install(body, selected(body, width, range(sizes.get(width.name, width.size))))
    torch.manual_seed(seed)
    refresh(body)
    return starting_from(task, model, path)


def said(outcomes: Sequence[Outcome], full: Sequence[Outcome], steps: int) -> Row:
    """Return an arm's figures, means over its runs, ratios against the full network beside them.

    Args:
        outcomes: One a seed or person.
        full: The full network's, likewise.
        steps: Of an epoch, in the mean.
    """
    parameters, flops = of(outcomes, "parameters"), of(outcomes, "flops")
    last = np.median([epoch["seconds"] for one in outcomes for epoch in one.epochs[-LAST:]])
    widths, near = final_widths(outcomes[0]), reached(outcomes, full)
    return {
        "runs": len(outcomes), "accuracy": f"{100 * of(outcomes, 'local_accuracy'):.2f} %",
        "parameters": round(parameters), "fewer": f"{of(full, 'parameters') / parameters:.1f}×",
        "MFLOPs": flops / 1e6, "less": f"{of(full, 'flops') / flops:.1f}×",
        "train s": of(outcomes, "train_seconds"), "s to near full": "–" if near is None else f"{near:.1f}",
        "ms a batch": 1e3 * float(last) / steps, "controller": f"{100 * control(outcomes):.1f} %",
        "widths, first run": "-".join(map(str, widths.values())),
    }  # fmt: skip


def of(outcomes: Sequence[Outcome], name: str) -> float:
    """Return the mean of a value."""
    return float(np.mean([one.values[name] for one in outcomes]))


def reached(outcomes: Sequence[Outcome], full: Sequence[Outcome]) -> float | None:
    """Return the training seconds, in the mean, until the mean accuracy is the full network's final one less `NEAR`.

    None where it is not reached. Seconds are those of epochs and of growth, without scoring.
    """
    near = epochs_to(outcomes, full)
    return None if near is None else float(_spent(outcomes)[near - 1])


def epochs_to(outcomes: Sequence[Outcome], full: Sequence[Outcome]) -> int | None:
    """Return the epochs until the mean accuracy is the full network's final one less `NEAR`; None where it never is."""
    wanted = of(full, "local_accuracy") - NEAR
    accuracy = np.mean([[epoch["local_accuracy"] for epoch in one.epochs] for one in outcomes], axis=0)
    near = np.flatnonzero(accuracy >= wanted)
    return int(near[0]) + 1 if len(near) else None


def _spent(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    """Return the seconds until the end of every epoch, in the mean; float64 [epochs]."""
    epochs = [[epoch["seconds"] for epoch in one.epochs] for one in outcomes]
    between = [[0.0, *(epoch.get("evolve_seconds", 0.0) for epoch in one.epochs[:-1])] for one in outcomes]
    return np.cumsum(np.mean(epochs, axis=0) + np.mean(between, axis=0))


def control(outcomes: Sequence[Outcome]) -> float:
    """Return the controller's share of the training seconds."""
    spent = sum(epoch.get("controller_seconds", 0.0) for one in outcomes for epoch in one.epochs)
    return spent / sum(one.values["train_seconds"] for one in outcomes)
