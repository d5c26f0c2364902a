"""One trial: the tail's training loop and its scores."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tuner.backends.base import Lowering, Report
from tuner.backends.memory import PeakMeter
from tuner.backends.scores import accuracy, macro_auc
from tuner.backends.torch.checkpoint import Checkpoint, restored
from tuner.backends.torch.epochs import all_epochs
from tuner.backends.torch.evolving import Training, evolving, room
from tuner.backends.torch.features import VALIDATION_BITS, Access, fill
from tuner.backends.torch.graph import NORMS
from tuner.backends.torch.model import Loaded, state_hash
from tuner.backends.torch.picks import Pick, every, training, validation
from tuner.backends.torch.prefix import channels_last, fast, spatial
from tuner.backends.torch.reader import Reader
from tuner.errors import TunerError
from tuner.plan import RecipePlan, TrialPlan
from tuner.planner.cost import FILL_BATCH
from tuner.results.records import Outcome
from tuner.store.augment import augment
from tuner.store.ops import acting
from tuner.store.store import Store
from tuner.task import Task, normalise

SCORE_BATCH = 32
MOMENTUM = 0.9
#: Training samples on which an evolving tail compares losses.
PROBE = 128
Floats = npt.NDArray[np.float32]
Logits = Floats
Change = Callable[[Floats], Floats]


def unchanged(maps: Floats) -> Floats:
    """Return the maps as they are."""
    return maps


class TrainingError(TunerError):
    """Training cannot go on."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tail's inputs come from: the store, or the samples and the frozen prefix.

    Attributes:
        read: Takes a pick's row numbers and returns the tail's input for them.
        labels: Of all rows.
    """

    read: Callable[[npt.NDArray[np.int64]], torch.Tensor]
    labels: npt.NDArray[np.generic]

    def batches(self, size: int, order: npt.NDArray[np.int64] | None = None) -> Iterator[npt.NDArray[np.int64]]:
        """Yield row numbers, `size` at a time."""
        rows = np.arange(len(self.labels)) if order is None else order
        for begin in range(0, len(rows), size):
            yield rows[begin : begin + size]


def source(
    task: Task, loaded: Loaded, split: int, picks: Sequence[Pick], stored: Reader | None, change: Change = unchanged
) -> Source:
    """Return the rows of `picks`, one pick after the other.

    Args:
        task: For preprocessing.
        loaded: The model.
        split: Where the tail begins.
        picks: The samples.
        stored: Their features; None to run the prefix every time.
        change: Made to the stored maps, or to the pixels where nothing is stored.
    """
    labels = np.concatenate([pick.labels() for pick in picks])
    if stored is not None:
        ids = [one for pick in picks for one in pick.ids()]
        return Source(lambda rows: torch.from_numpy(change(stored.read([ids[row] for row in rows]))), labels)
    where = [(pick.samples, int(index)) for pick in picks for index in pick.indices]
    prefix = fast(loaded.chain.prefix(split)) if loaded.chain is not None and split > 0 else nn.Identity()

    def read(rows: npt.NDArray[np.int64]) -> torch.Tensor:
        raw = np.stack([samples.load(index) for samples, index in (where[row] for row in rows)])
        pixels = torch.from_numpy(change(normalise(raw, task.input)))
        with torch.inference_mode():  # as many at a time as a filling pass takes, whatever the batch
            parts = [prefix(spatial(pixels[at : at + FILL_BATCH])) for at in range(0, len(pixels), FILL_BATCH)]
        return torch.cat(parts)  # out of inference mode, so that autograd may keep it

    return Source(read, labels)


def run(
    task: Task,
    loaded: Loaded,
    plan: TrialPlan,
    seed: int,
    store: Store,
    weights: Path,
    report: Report,
    lowerings: Mapping[str, Lowering],
    engine: "Engine | None" = None,
) -> Outcome:
    """Train the tail as planned, score it, write it; see `tuner.backends.base.Backend.train`.

    `engine` runs the steps, by default `Loop`; the time it takes to get ready is training time.
    """
    torch.set_num_threads(plan.runtime.threads)
    torch.manual_seed(seed)
    access = Access(task, loaded, store, plan.runtime.threads, report)
    if plan.cached:
        fill(access, [plan])  # nothing to do in a study, which fills ahead
    meter = PeakMeter()
    report({"resting_bytes": meter.resting})
    frozen = loaded.prefix(plan.split)
    before = state_hash(frozen)
    tail = edited(loaded.tail(plan.split), plan, lowerings)
    checkpoint = Checkpoint.of(plan, seed, weights)
    going = checkpoint.read()
    if going is not None:
        tail.load_state_dict(going.tail)
    changes = np.random.default_rng((seed, 1))
    picks = training(task, plan)
    stored = Reader(access, plan.split, plan.cache.bits, picks) if plan.cached else None
    exact = Reader(access, plan.split, VALIDATION_BITS, validation(task)) if plan.cached else None
    rows = source(task, loaded, plan.split, picks, stored, augmenting(plan, changes))
    local = source(task, loaded, plan.split, [every(task, "local.val")], exact)
    started = time.perf_counter()
    loop = (engine or Loop)(task, plan, tail, rows, seed)
    epochs = restored(loop, changes, going)
    spent = time.perf_counter() - started + (going.train_seconds if going is not None else 0.0)
    train_seconds, stopped = all_epochs(
        loop, plan, report, epochs, spent, lambda: score(task, tail, local), lambda: room(plan, meter),
        lambda seconds: checkpoint.write(tail, loop, changes, epochs, seconds),
    )  # fmt: skip
    notes = (*loop.notes, *loop.finish())
    _refuse_broken(tail, plan.recipe)
    values = {
        "local_accuracy": score(task, tail, local),
        "train_seconds": train_seconds,
        **sizes(loaded, plan.split, tail, loop.example),
    }
    if task.global_ is not None:
        values["global_accuracy"] = score(
            task, tail, source(task, loaded, plan.split, [every(task, "global.val")], exact)
        )
    if state_hash(frozen) != before:
        raise TrainingError("the frozen prefix changed while the tail trained: the trial does not count")
    weights.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in tail.state_dict().items()}, weights)
    checkpoint.clear()
    return Outcome({**values, "peak_bytes": float(meter.peak_bytes())}, tuple(epochs), stopped, notes)


def _refuse_broken(tail: nn.Module, recipe: RecipePlan) -> None:
    """Refuse to score weights that are not numbers: the last step, or half an epoch, may have broken them unseen."""
    for name, value in tail.state_dict().items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise TrainingError(
                f"{name} is no longer finite: lower recipe.learning_rate, which is {recipe.learning_rate:g}"
            )


def augmenting(plan: TrialPlan, seed: int | np.random.Generator) -> Change:
    """Return the plan's random changes, drawn from the trial's own generator or from a given one."""
    if not plan.cache.augment:
        return unchanged
    generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng((seed, 1))
    ops, strength = acting(plan.task.augment, cached=plan.cached), plan.cache.augment
    return lambda maps: augment(maps, generator, ops, strength)


def edited(tail: nn.Module, plan: TrialPlan, lowerings: Mapping[str, Lowering]) -> nn.Module:
    """Return the tail with every edit of the plan made."""
    for edit in plan.shape:
        if edit.kind not in lowerings:
            raise TrainingError(f"no installed plugin realises the plan's edit {edit.kind!r}: see `tuner plugins`")
        tail = lowerings[edit.kind](tail, dict(edit.settings))
    return tail


def sizes(loaded: Loaded, split: int, tail: nn.Module, example: torch.Tensor) -> dict[str, float]:
    """Return the whole model's parameters and the FLOPs of one sample's forward pass, the tail's as it is now."""
    tail.eval()
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        tail(example[:1])
    frozen = loaded.info.blocks[:split]
    parameters = sum(value.numel() for value in tail.parameters()) + sum(block.parameters for block in frozen)
    return {"parameters": parameters, "flops": counter.get_total_flops() + sum(block.flops for block in frozen)}


def score(task: Task, tail: nn.Module, rows: Source) -> float:
    """Return the accuracy over all outputs of the union head; for several labels a sample, the macro AUC."""
    outputs = logits(tail, rows)
    if task.loss == "multi-label":
        return macro_auc(outputs, rows.labels)
    return accuracy(outputs, rows.labels)


def logits(tail: nn.Module, rows: Source) -> Logits:
    """Return float32 [n, outputs] in evaluation mode."""
    tail.eval()
    with torch.inference_mode():
        parts = [tail(spatial(rows.read(batch))).numpy() for batch in rows.batches(SCORE_BATCH)]
    return np.concatenate(parts)


class Steps(Protocol):
    """What runs a trial's steps.

    Attributes:
        notes: What the user should know of how they ran.
        example: One input of the tail, float32 [1, ...].
    """

    notes: tuple[str, ...]
    example: torch.Tensor

    def epoch(self, epoch: int, report: Report, /) -> tuple[float, bool]:
        """Train one epoch; return the mean loss, and whether it was told to stop before the end."""
        ...

    def evolve(self, epoch: int, room: int | None, /) -> dict[str, float]:
        """Let the tail change within `room` bytes after an epoch, counted from 1; return its log and its seconds."""
        ...

    def finish(self) -> tuple[str, ...]:
        """Let the tail become what is kept; return its notes."""
        ...


#: Takes what `Loop` takes.
Engine = Callable[[Task, TrialPlan, nn.Module, Source, int], Steps]


class Loop:
    """The tail, its optimiser and its schedule."""

    notes: tuple[str, ...] = ()

    def __init__(self, task: Task, plan: TrialPlan, tail: nn.Module, rows: Source, seed: int) -> None:
        self._tail = channels_last(tail)
        self._recipe = plan.recipe
        self._rows = rows
        self._order = np.random.default_rng(seed)
        self._multi = task.loss == "multi-label"
        self._threads = plan.runtime.threads
        for parameter in tail.parameters():
            parameter.requires_grad_()
        self._optimiser = optimiser(list(tail.parameters()), plan.recipe)
        steps = math.ceil(len(rows.labels) / plan.recipe.batch_size)
        self._steps = plan.recipe.epochs * steps
        self._step = 0
        self._probe = np.sort(np.random.default_rng((seed, 2)).permutation(len(rows.labels))[:PROBE])
        self.example = spatial(rows.read(self._probe[:1]))
        self._evolving = evolving(tail)
        self._frozen_norms = plan.recipe.freeze_bn and not any(one.fresh_norms for one in self._evolving)
        for one in self._evolving:
            one.begin(Training(self._optimiser, self.example, self._probed, steps, seed, plan.recipe))

    def epoch(self, epoch: int, report: Report) -> tuple[float, bool]:
        """Train one epoch; return the mean loss, and whether it was told to stop before the end."""
        self.prepare()
        total = 0.0
        rows = self._order.permutation(len(self._rows.labels))
        for batch in self._rows.batches(self._recipe.batch_size, rows):
            if not self._frozen_norms and len(batch) == 1 and len(rows) > 1:
                continue  # a batch norm has no statistics of one sample
            total += self.step(batch) * len(batch)
            if report({"step": self._step, "steps": self._steps}):
                return total / len(rows), True
        mean = total / len(rows)
        if not math.isfinite(mean):
            raise TrainingError(
                f"the loss became {mean} in epoch {epoch + 1}: lower recipe.learning_rate, which is "
                f"{self._recipe.learning_rate:g}"
            )
        return mean, False

    def prepare(self) -> None:
        """Put the tail in training mode, its norms as the recipe says."""
        self._tail.train()
        if self._frozen_norms:
            for module in self._tail.modules():
                if isinstance(module, NORMS):
                    module.eval()

    def step(self, batch: npt.NDArray[np.int64]) -> float:
        """Train on one batch of row numbers; return its mean loss."""
        self._adjust()
        self._optimiser.zero_grad(set_to_none=True)
        size = self._recipe.part_size
        value = sum(self._backward(batch[at : at + size], len(batch)) for at in range(0, len(batch), size))
        for one in self._evolving:
            one.before_update(value)
        self._optimiser.step()
        for one in self._evolving:
            one.after_update()
        self._step += 1
        return value

    def _backward(self, part: npt.NDArray[np.int64], count: int) -> float:
        """Add the gradients of some of a batch's `count` samples; return what they add to its mean loss."""
        labels = torch.from_numpy(np.ascontiguousarray(self._rows.labels[part]))
        loss = self._loss(self._tail(spatial(self._rows.read(part))), labels) * (len(part) / count)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return float(loss.detach())

    def evolve(self, epoch: int, room: int | None) -> dict[str, float]:
        """Let the tail change within `room` bytes after an epoch, counted from 1; return its log and its seconds."""
        if not self._evolving:
            return {}
        started = time.perf_counter()
        said = {name: value for one in self._evolving for name, value in one.after_epoch(epoch, room).items()}
        return {**said, "evolve_seconds": time.perf_counter() - started}

    def state(self) -> dict[str, Any]:
        """Return what an epoch starts from beside the weights: order, schedule, optimiser, what evolves."""
        return {
            "order": self._order.bit_generator.state,
            "step": self._step,
            "optimiser": self._optimiser.state_dict(),
            "evolving": [one.state() for one in self._evolving],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, on a tail that has its weights."""
        self._order.bit_generator.state = state["order"]
        self._step = state["step"]
        self._optimiser.load_state_dict(state["optimiser"])
        for one, its in zip(self._evolving, state["evolving"], strict=True):
            one.restore(its)

    def finish(self) -> tuple[str, ...]:
        """Let the tail become what is kept; return its notes."""
        return tuple(note for one in self._evolving for note in one.finish())

    def _probed(self, tail: nn.Module) -> torch.Tensor:
        """Return a tail's mean loss on the probe, in evaluation mode."""
        tail.eval()
        labels = torch.from_numpy(np.ascontiguousarray(self._rows.labels[self._probe]))
        return self._loss(tail(spatial(self._rows.read(self._probe))), labels)

    def _loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self._multi:
            return functional.binary_cross_entropy_with_logits(outputs, labels)
        return functional.cross_entropy(outputs, labels)

    def _adjust(self) -> None:
        adjust(self._optimiser, self._recipe, self._step / max(1, self._steps))


def adjust(one: torch.optim.Optimizer, recipe: RecipePlan, share: float) -> None:
    """Set the learning rate as scheduled when a `share` of all steps is done."""
    scale = 0.5 * (1 + math.cos(math.pi * share)) if recipe.schedule == "cosine" else 1.0
    for group in one.param_groups:
        group["lr"] = recipe.learning_rate * scale


def optimiser(parameters: list[nn.Parameter], recipe: RecipePlan) -> torch.optim.Optimizer:
    """Return the recipe's optimiser."""
    shared: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(parameters, momentum=MOMENTUM, **shared)
    if recipe.optimiser == "adam":
        return torch.optim.Adam(parameters, **shared)
    return torch.optim.AdamW(parameters, **shared)
