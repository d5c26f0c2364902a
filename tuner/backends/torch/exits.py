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
from tuner.backends.torch.features import VALIDATION_BITS, Access, Pick, Reader, calibrating, every, fill, training
from tuner.backends.torch.heads import exit_loss, head
from tuner.backends.torch.leaving import Logits, Settled, costs, score, settle, truths
from tuner.backends.torch.model import Loaded, state_hash
from tuner.backends.torch.prefix import channels_last, fast, spatial
from tuner.backends.torch.training import SCORE_BATCH, TrainingError, adjust, optimiser, source
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
) -> Outcome:
    """Train the exits, and before them the tail where the plan has one; see `tuner.backends.base.Backend.train`."""
    resting, tail = PeakMeter(), Outcome({})
    access = Access(task, loaded, store, plan.runtime.threads, report)
    torch.set_num_threads(plan.runtime.threads)
    if plan.trainable:
        tail = run_tail(task, loaded, plan, seed, store, weights, report, lowerings)
    elif plan.cached:
        fill(access, [plan])  # nothing to do in a study, which fills ahead
    torch.manual_seed(seed)
    meter = PeakMeter()
    report({"resting_bytes": resting.resting})
    before = state_hash(loaded.model)
    heads = built(plan)
    final = loaded.tail(plan.cuts[-1]).eval()
    started = time.perf_counter()
    epochs, stopped = ((), tail.stopped) if tail.stopped else _trained(access, plan, heads, final, seed, report)
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


def _trained(
    access: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seed: int, report: Report
) -> tuple[tuple[dict[str, float], ...], str]:
    """Train all heads together; return what each epoch measured, and why training ended early."""
    picks, recipe = training(access.task, plan), plan.recipe
    taught = view(access, plan, plan.cuts[-1:], picks, exact=False)
    teacher = _teacher(plan, final, taught)
    seen = view(access, plan, [one.block for one in plan.heads.exits], picks, exact=False)
    order = np.random.default_rng(seed)
    chosen = optimiser(list(heads.parameters()), recipe)
    multi = access.task.loss == "multi-label"
    steps, step = recipe.epochs * math.ceil(len(seen.labels) / recipe.batch_size), 0
    epochs: list[dict[str, float]] = []
    for epoch in range(recipe.epochs):
        started, total = time.perf_counter(), 0.0
        heads.train()
        rows = order.permutation(len(seen.labels))
        for batch in _batches(rows, recipe.batch_size):
            if len(batch) == 1 and len(rows) > 1:
                continue  # a batch norm has no statistics of one sample
            adjust(chosen, recipe, step / steps)
            chosen.zero_grad(set_to_none=True)
            inputs, labels = seen.read(batch), torch.from_numpy(np.ascontiguousarray(seen.labels[batch]))
            losses = [
                exit_loss(one(spatial(inputs[place.block])), teacher[batch], labels, plan.heads, multi=multi)
                for place, one in zip(plan.heads.exits, heads, strict=True)
            ]
            loss = torch.stack(losses).sum()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            chosen.step()
            step += 1
            total += float(loss.detach()) * len(batch)
            if report({"step": step, "steps": steps}):
                return tuple(epochs), f"told to stop in epoch {epoch + 1} of the exits"
        if not math.isfinite(total):
            raise TrainingError(
                f"the exits' loss became {total} in epoch {epoch + 1}: lower recipe.learning_rate, which is "
                f"{recipe.learning_rate:g}"
            )
        entry = {"epoch": epoch + 1.0, "loss": total / len(rows), "seconds": time.perf_counter() - started}
        epochs.append(entry)
        if report({"epoch": epoch + 1, "epochs": recipe.epochs, **entry}) and epoch + 1 < recipe.epochs:
            return tuple(epochs), f"told to stop after epoch {epoch + 1} of the exits"
    return tuple(epochs), ""


def _teacher(plan: TrialPlan, final: nn.Module, seen: View) -> torch.Tensor:
    """Return the final head's logits on all training rows, float32 [n, outputs]: it runs once, not once an epoch."""
    with torch.inference_mode():
        parts = [
            final(spatial(seen.read(rows)[plan.cuts[-1]]))
            for rows in _batches(np.arange(len(seen.labels)), SCORE_BATCH)
        ]
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
