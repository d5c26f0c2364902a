"""What the benchmarks of growth share: arms that train through the backend, and what is told of each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

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
from tuner_growth.torch.cost import network_cost
from tuner_growth.torch.tail import refresh
from tuner_growth.torch.widths import find, selected, traced

WEIGHTS = "weights.safetensors"
#: Training samples that Taylor saliency is taken from, at most.
SALIENT = 1_000
#: Children of a width search.
GENERATIONS = 6
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


def pruned(task: Task, weights: Path, sizes: dict[str, int], path: Path) -> Task:
    """Cut a trained network to some widths, its least salient channels first; return the task that starts from it.

    Saliency is Taylor's, Σ|∂L/∂W ⊙ W| of a channel, on training samples.
    """
    model = load(task).model
    model.load_state_dict(load_file(weights))
    for parameter in model.parameters():
        parameter.requires_grad_()
    body, samples = traced(model), task.local.train
    count = min(SALIENT, len(samples))
    values = torch.from_numpy(task.batch(samples, range(count)))
    functional.cross_entropy(body(values), torch.from_numpy(samples.labels[:count])).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    kept = {}
    for width in find(body).growable:
        saliency = torch.zeros(width.size)
        for name in width.producers:
            weight = body.get_submodule(name).get_parameter("weight")
            if weight.grad is not None:
                saliency += (weight * weight.grad).detach().abs().flatten(1).sum(dim=1)
        kept[width] = sorted(saliency.argsort(descending=True)[: sizes[width.name]].tolist())
    for width, channels in kept.items():
        install(body, selected(body, width, channels))
    return starting_from(task, model, path)


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


def searched(
    task: Task, caps: tuple[float, float], recipe: RecipePlan, seed: int, folder: Path, augment: float
) -> Outcome:
    """Search widths by evolution, one parent and one child in memory, then train the best from scratch (S-search).

    The first parent has all widths at one fraction, the largest that obeys the caps. Each child's widths are its
    parent's times up to 1.5 or its inverse; the lower training loss after a fifth of the epochs wins.

    Args:
        task: With a network of full size.
        caps: Fractions of the full parameters and FLOPs that are not exceeded.
        recipe: Of the last training.
        seed: Of the search.
        folder: Where weights go.
        augment: Strength of the task's random changes.
    """
    body, random = traced(load(task).model), np.random.default_rng(seed)
    widths = find(body)
    names, full = [width.name for width in widths.growable], [width.size for width in widths.growable]
    cost = network_cost(body, widths, torch.from_numpy(task.batch(task.local.train, range(1))))

    def fits(sizes: Sequence[int]) -> bool:
        return cost.parameters(sizes) <= caps[0] * cost.parameters(full) and (
            cost.flops(sizes) <= caps[1] * cost.flops(full)
        )

    def outcome(sizes: Sequence[int], epochs: int) -> Outcome:
        start = fresh(task, dict(zip(names, sizes, strict=True)), seed, folder / "start.safetensors")
        return trained(start, None, replace(recipe, epochs=epochs), seed, folder / "search", augment=augment)

    def child(parent: Sequence[int]) -> list[int]:
        while True:
            factors = np.exp(random.uniform(-1, 1, len(parent)) * np.log(1.5))
            sizes = [int(size) for size in np.clip(np.round(parent * factors), 1, full)]
            if fits(sizes) and sizes != list(parent):
                return sizes

    part = max(1, recipe.epochs // 5)
    best = max(sizes for one in range(1, 101) if fits(sizes := [-(-size * one // 100) for size in full]))
    found = outcome(best, part)
    seconds = found.values["train_seconds"]
    for _ in range(GENERATIONS):
        sizes = child(best)
        other = outcome(sizes, part)
        seconds += other.values["train_seconds"]
        if other.epochs[-1]["loss"] < found.epochs[-1]["loss"]:
            best, found = sizes, other
    last = outcome(best, recipe.epochs)
    values = {**last.values, "train_seconds": seconds + last.values["train_seconds"]}
    logged = {f"{name}.width": float(size) for name, size in zip(names, best, strict=True)}
    return replace(last, values=values, epochs=({**last.epochs[0], **logged}, *last.epochs[1:]))


def said(outcomes: Sequence[Outcome], full: Sequence[Outcome], steps: int) -> Row:
    """Return an arm's figures, means over its runs, ratios against the full network beside them.

    Args:
        outcomes: One a seed or person.
        full: The full network's, likewise.
        steps: Of an epoch, in the mean.
    """
    parameters, flops = of(outcomes, "parameters"), of(outcomes, "flops")
    last = np.median([epoch["seconds"] for one in outcomes for epoch in one.epochs[-LAST:]])
    widths = final_widths(outcomes[0])
    return {
        "runs": len(outcomes),
        "accuracy": f"{100 * of(outcomes, 'local_accuracy'):.2f} %",
        "parameters": round(parameters),
        "fewer": f"{of(full, 'parameters') / parameters:.1f}×",
        "MFLOPs": flops / 1e6,
        "less": f"{of(full, 'flops') / flops:.1f}×",
        "train s": of(outcomes, "train_seconds"),
        "s to near full": _text(reached(outcomes, full)),
        "ms a batch": 1e3 * float(last) / steps,
        "controller": f"{100 * control(outcomes):.1f} %",
        "widths, first run": "-".join(map(str, widths.values())),
    }


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


def _text(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f}"
