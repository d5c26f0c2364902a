"""Side heads: trained on what is stored of several cuts, calibrated on samples held out, scored as they will answer.

Source: PersEPhonEE (HotMobile 2021). The path to the final head never changes: in mode `exits-only` it is the given
model's, in `with-tail` that of the tail trained before.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch import nn

from tuner.backends.base import Lowering, Report
from tuner.backends.memory import PeakMeter
from tuner.backends.torch.features import VALIDATION_BITS, Access, fill
from tuner.backends.torch.heads import exit_loss, head
from tuner.backends.torch.leaving import Logits, Settled, costs, score, settle, truths
from tuner.backends.torch.model import Loaded, state_hash
from tuner.backends.torch.picks import Pick, calibrating, every, training
from tuner.backends.torch.prefix import channels_last, fast, spatial
from tuner.backends.torch.reader import Reader
from tuner.backends.torch.training import SCORE_BATCH, Engine, TrainingError, adjust, optimiser, source
from tuner.backends.torch.training import run as run_tail
from tuner.plan import TrialPlan
from tuner.planner.cost import widths
from tuner.results.records import Outcome
from tuner.runtime.calibration import confidences, leaves
from tuner.store.store import Store
from tuner.task import Task, normalise

Rows = npt.NDArray[np.int64]
METADATA = "exits"


@dataclass(frozen=True, slots=True)
class View:
    """What is read of some samples: the inputs of several cuts, and the labels.

    Attributes:
        read: Takes row numbers and returns float32 [n, ...] by cut.
        labels: Of all rows.
    """

    read: Callable[[Rows], dict[int, torch.Tensor]]
    labels: npt.NDArray[np.generic]


def run(
    task: Task,
    loaded: Loaded,
    plan: TrialPlan,
    seed: int,
    store: Store,
    weights: Path,
    report: Report,
    lowerings: Mapping[str, Lowering],
    engine: Engine | None = None,
) -> Outcome:
    """Train the exits, and before them the tail where the plan has one; see `tuner.backends.base.Backend.train`.

    `engine` runs the tail's steps, as in `tuner.backends.torch.training.run`.
    """
    resting, tail = PeakMeter(), Outcome({})
    access = Access(task, loaded, store, plan.runtime.threads, report)
    torch.set_num_threads(plan.runtime.threads)
    if not len(calibrating(task)):
        raise TrainingError(
            f"exits are calibrated on a fifth of each class's local samples, but no class has two of the "
            f"{len(task.local.train)}: add samples, or leave exits out"
        )
    if plan.trainable:
        tail = run_tail(task, loaded, plan, seed, store, weights, report, lowerings, engine)
    elif plan.cached:
        fill(access, [plan])  # nothing to do in a study, which fills ahead
    torch.manual_seed(seed)
    meter = PeakMeter()
    report({"resting_bytes": resting.resting})
    before = state_hash(loaded.model)
    heads = built(plan)
    final = loaded.tail(plan.cuts[-1]).eval()
    started = time.perf_counter()
    loop = HeadsLoop(access, plan, heads, final, seed)
    epochs, stopped = ((), tail.stopped) if tail.stopped else loop.run(report)
    seconds = tail.values.get("train_seconds", 0.0) + time.perf_counter() - started
    if state_hash(loaded.model) != before:
        raise TrainingError("the backbone changed while exits trained: the trial does not count")
    values, settled, notes = _scored(access, plan, heads, final)
    peak = max(tail.values.get("peak_bytes", 0.0), meter.peak_bytes() + meter.resting - resting.resting)
    values |= {"train_seconds": seconds, "peak_bytes": float(max(0, peak))}
    state = loaded.tail(plan.split).state_dict() if plan.trainable else {}
    keep(weights, state, heads, settled)
    return Outcome(values, (*tail.epochs, *epochs), stopped, (*tail.notes, *notes))


def built(plan: TrialPlan) -> nn.ModuleList:
    """Return the plan's side heads, untrained."""
    shapes = [plan.model.blocks[one.block].in_shape for one in plan.heads.exits]
    pairs = zip(plan.heads.exits, shapes, strict=True)
    return nn.ModuleList(channels_last(head(shape, one.channels, plan.model.outputs)) for one, shape in pairs)


def keep(weights: Path, tail: Mapping[str, torch.Tensor], heads: nn.ModuleList, settled: Settled) -> None:
    """Write the tail, the kept heads (``exits.N.…``) and what calibration decided into one file."""
    tensors = {name: value.contiguous() for name, value in tail.items()}
    for place, index in enumerate(settled.kept):
        state = heads[index].state_dict()
        tensors |= {f"exits.{place}.{name}": value.contiguous() for name, value in state.items()}
    tensors = tensors or {"nothing": torch.zeros(1)}  # a file without tensors keeps no metadata
    weights.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, weights, {METADATA: json.dumps(asdict(settled))})


def view(access: Access, plan: TrialPlan, cuts: Sequence[int], picks: Sequence[Pick], *, exact: bool) -> View:
    """Return how to read some cuts of the samples of `picks`, one pick after the other.

    Args:
        access: The task's features.
        plan: Whether they are stored, and at which width.
        cuts: Block numbers.
        picks: The samples.
        exact: Whether the 16-bit records that scores come from are read, instead of those for training.
    """
    task, loaded = access.task, access.loaded
    if plan.cached:
        bits = dict.fromkeys(cuts, VALIDATION_BITS) if exact else widths(plan)
        readers = {cut: Reader(access, cut, bits[cut], picks) for cut in cuts}
        sources = {cut: source(task, loaded, cut, picks, reader) for cut, reader in readers.items()}
        return View(lambda rows: {cut: one.read(rows) for cut, one in sources.items()}, sources[cuts[0]].labels)
    if loaded.chain is None:
        raise TrainingError("a model without cut points has no place for exits")
    pixels = source(task, loaded, 0, picks, None)
    part = fast(loaded.chain.outputs([loaded.chain.split_position(cut) for cut in cuts]))

    def read(rows: Rows) -> dict[int, torch.Tensor]:
        with torch.inference_mode():
            outputs = part(spatial(pixels.read(rows)))
        return {cut: value.clone() for cut, value in zip(cuts, outputs, strict=True)}

    return View(read, pixels.labels)


def answers(plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seen: View) -> Logits:
    """Return the logits of every exit and of the final head, float32 [exits + 1, n, outputs]."""
    heads.eval()
    parts = []
    for rows in _batches(np.arange(len(seen.labels)), SCORE_BATCH):
        inputs = seen.read(rows)
        with torch.inference_mode():
            sides = [one(spatial(inputs[place.block])) for place, one in zip(plan.heads.exits, heads, strict=True)]
            parts.append(torch.stack([*sides, final(spatial(inputs[plan.cuts[-1]]))], dim=0).numpy())
    return np.concatenate(parts, axis=1)


class HeadsLoop:
    """The side heads, trained together: their losses add up, and none depends on another.

    Args:
        access: The task's features.
        plan: Exits, losses and recipe.
        heads: As `built` returns them, or trained before.
        final: The final head and what of the tail is before it, in evaluation mode: the teacher.
        seed: Of the order of samples.
    """

    def __init__(self, access: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seed: int) -> None:
        picks, self._plan, self._heads = training(access.task, plan), plan, heads
        self._teacher = _teacher(plan, final, view(access, plan, plan.cuts[-1:], picks, exact=False))
        self._seen = view(access, plan, [one.block for one in plan.heads.exits], picks, exact=False)
        self._order = np.random.default_rng(seed)
        self._optimiser = optimiser(list(heads.parameters()), plan.recipe)
        self._multi = access.task.loss == "multi-label"
        self.samples = len(self._seen.labels)
        self._steps = plan.recipe.epochs * math.ceil(self.samples / plan.recipe.batch_size)
        self._step = 0

    def run(self, report: Report) -> tuple[tuple[dict[str, float], ...], str]:
        """Train for all epochs; return what each measured, and why training ended early."""
        epochs: list[dict[str, float]] = []
        for epoch in range(self._plan.recipe.epochs):
            started = time.perf_counter()
            loss, halted = self.epoch(epoch, report)
            if halted:
                return tuple(epochs), f"told to stop in epoch {epoch + 1} of the exits"
            entry = {"epoch": epoch + 1.0, "loss": loss, "seconds": time.perf_counter() - started}
            epochs.append(entry)
            halted = report({"epoch": epoch + 1, "epochs": self._plan.recipe.epochs, **entry})
            if halted and epoch + 1 < self._plan.recipe.epochs:
                return tuple(epochs), f"told to stop after epoch {epoch + 1} of the exits"
        return tuple(epochs), ""

    def epoch(self, epoch: int, report: Report) -> tuple[float, bool]:
        """Train one epoch; return the mean of the summed losses, and whether it was told to stop before the end."""
        rows, total = self._order.permutation(self.samples), 0.0
        for batch in _batches(rows, self._plan.recipe.batch_size):
            if len(batch) == 1 and self.samples > 1:
                continue  # a batch norm has no statistics of one sample
            total += self.step(batch) * len(batch)
            if report({"step": self._step, "steps": self._steps}):
                return total / len(rows), True
        if not math.isfinite(total):
            raise TrainingError(
                f"the exits' loss became {total} in epoch {epoch + 1}: lower recipe.learning_rate, which is "
                f"{self._plan.recipe.learning_rate:g}"
            )
        return total / len(rows), False

    def step(self, batch: Rows) -> float:
        """Train on one batch of row numbers; return the sum of the heads' mean losses."""
        self._heads.train()
        adjust(self._optimiser, self._plan.recipe, self._step / self._steps)
        self._optimiser.zero_grad(set_to_none=True)
        inputs = self._seen.read(batch)
        labels = torch.from_numpy(np.ascontiguousarray(self._seen.labels[batch]))
        plan, teacher = self._plan.heads, self._teacher[batch]
        losses = [
            exit_loss(one(spatial(inputs[place.block])), teacher, labels, plan, multi=self._multi)
            for place, one in zip(plan.exits, self._heads, strict=True)
        ]
        loss = torch.stack(losses).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimiser.step()
        self._step += 1
        return float(loss.detach())


def _teacher(plan: TrialPlan, final: nn.Module, seen: View) -> torch.Tensor:
    """Return the final head's logits on all training rows, float32 [n, outputs]: it runs once, not once an epoch."""
    rows = _batches(np.arange(len(seen.labels)), SCORE_BATCH)
    with torch.inference_mode():
        parts = [final(spatial(seen.read(some)[plan.cuts[-1]])) for some in rows]
    return torch.cat(parts).clone()


def _scored(
    access: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module
) -> tuple[dict[str, float], Settled, list[str]]:
    """Calibrate, then score the policy that came out on the validation samples."""
    task, multi = access.task, access.task.loss == "multi-label"
    held = view(access, plan, plan.cuts, [calibrating(task)], exact=True)
    outputs = answers(plan, heads, final, held)
    truth = truths(task, "local", outputs, held.labels)
    prices = costs(access.loaded, plan, heads, torch.from_numpy(normalise(task.local.val.load(0)[None], task.input)))
    settled, notes = settle(plan, outputs, truth, prices, multi=multi)
    values: dict[str, float] = {}
    for domain in ("local", "global") if task.global_ is not None else ("local",):
        seen = view(access, plan, plan.cuts, [every(task, f"{domain}.val")], exact=True)
        outputs = answers(plan, heads, final, seen)
        truth = truths(task, domain, outputs, seen.labels)
        kept = outputs[[*settled.kept, -1]]
        exits = leaves(confidences(kept, settled.temperature, multi=multi), settled.thresholds)
        left = kept[exits, np.arange(len(exits))]
        values[f"{domain}_accuracy"] = score(left, truth, multi=multi)
        values[f"final_{domain}_accuracy"] = score(outputs[-1], truth, multi=multi)
        for place, own in enumerate(kept[:-1]):
            values[f"exit{place}_{domain}_accuracy"] = score(own, truth, multi=multi)
        if domain == "local":
            rates = np.bincount(exits, minlength=len(kept)) / len(exits)
            seconds, flops = (float(rates @ price.only(settled.kept).leaving()) for price in prices)
            values |= {"mean_latency_seconds": seconds, "mean_flops": flops}
            values["whole_latency_seconds"] = prices[0].reached[-1]
    return values, settled, notes


def _batches(rows: Rows, size: int) -> list[Rows]:
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]
