"""Export with exits: a chain of ONNX files, one for each exit, each weight once; calibrated again as it will run."""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from tuner.backends.base import Lowering
from tuner.backends.torch.exits import METADATA, built
from tuner.backends.torch.export import CHECK_BATCH, TOLERANCE
from tuner.backends.torch.leaving import Logits, score, truths
from tuner.backends.torch.model import Loaded
from tuner.backends.torch.picks import calibrating
from tuner.backends.torch.prefix import spatial, write_onnx
from tuner.backends.torch.trainable_exits import write_trainable_exits
from tuner.errors import BundleError
from tuner.plan import TrialPlan
from tuner.planner.cost import head_flops
from tuner.runtime.calibration import (
    Answers,
    Costs,
    calibrate,
    confidences,
    fitted_temperature,
    front,
    leaves,
    rightness,
    sweep,
)
from tuner.runtime.chain import Chain
from tuner.runtime.session import FEATURES, LOGITS
from tuner.task import Samples, Subset, Task, normalise

TIMED_RUNS = 7


class Segment(nn.Module):
    """The blocks up to an exit, and the exit: float32 [n, ...] to the features that go on and the exit's logits."""

    def __init__(self, body: nn.Module, side: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.side = side

    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features and logits."""
        features = self.body(value)
        return features, self.side(features)


def export(
    task: Task,
    loaded: Loaded,
    plan: TrialPlan,
    weights: Path,
    folder: Path,
    lowerings: Mapping[str, Lowering],
    *,
    trainable: bool = False,
) -> dict[str, Any]:
    """Write ``segments/N.onnx``, ``weights.safetensors`` and ``exits.safetensors``; see `Backend.export`.

    Thresholds and temperature are set again on the calibration samples from pixels, by ONNX Runtime: a trial sets them
    on stored features. With `trainable` the exits' weights keep their names, so that those trained later can take their
    place; see `tuner.backends.torch.trainable_exits`. Where calibration has kept no exit, there is nothing to train.

    Raises:
        BundleError: A segment cannot be written as ONNX, or ONNX Runtime computes something else.
    """
    del lowerings  # a tail with edits has no exits
    torch.set_num_threads(plan.runtime.threads)
    kept, parts = restored(loaded, plan, weights)
    names = [f"segments/{number}.onnx" for number in range(len(parts))]
    sample = torch.from_numpy(normalise(task.local.val.load(0)[None], task.input))
    (folder / "segments").mkdir(mode=0o700)
    value = torch.cat([sample, sample])
    for name, part in zip(names, parts, strict=True):
        is_last = name == names[-1]
        try:
            outputs = [LOGITS] if is_last else [FEATURES, LOGITS]
            write_onnx(part, value, folder / name, outputs, optimize=not trainable)
        except Exception as error:  # the exporter raises many kinds
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise BundleError(f"{name} cannot be written as ONNX ({reason}): pick a trial without exits") from error
        with torch.inference_mode():
            value = value if is_last else part(value)[0].clone()
    sides = [part.side for part in parts if isinstance(part, Segment)]
    state = {name: one.contiguous() for name, one in loaded.model.state_dict().items()}
    heads = {
        f"{at}.{name}": one.contiguous() for at, side in enumerate(sides) for name, one in side.state_dict().items()
    }
    save_file(state, folder / "weights.safetensors")
    if heads:
        save_file(heads, folder / "exits.safetensors")
    chain = Chain([folder / name for name in names], plan.model.outputs, threads=plan.runtime.threads)
    found = _checked(task, plan, kept, chain, parts, names)
    if trainable and kept:
        found["train"] = write_trainable_exits(task, plan, kept, chain, sides, folder)
    return found


def restored(loaded: Loaded, plan: TrialPlan, weights: Path) -> tuple[tuple[int, ...], list[nn.Module]]:
    """Return which exits a trial kept, and its model as segments; the last has no exit.

    Raises:
        BundleError: The weights are not those of a trial with exits.
    """
    with safe_open(weights, "pt") as file:
        said = (file.metadata() or {}).get(METADATA)
    if said is None or loaded.chain is None:
        raise BundleError(f"{weights} holds no exits: export a trial that has some")
    kept = tuple(json.loads(said)["kept"])
    state, heads = load_file(weights), built(plan)
    if plan.trainable:
        loaded.tail(plan.split).load_state_dict(
            {name: one for name, one in state.items() if not name.startswith("exits.")}
        )
    for place, index in enumerate(kept):
        begin = f"exits.{place}."
        heads[index].load_state_dict({name[len(begin) :]: one for name, one in state.items() if name.startswith(begin)})
    splits = [0, *(plan.heads.exits[index].block for index in kept), plan.model.num_blocks]
    positions = [loaded.chain.split_position(split) for split in splits]
    bodies = [loaded.chain.part(begin, end) for begin, end in pairwise(positions)]
    sides = [Segment(body, heads[index]) for body, index in zip(bodies, kept, strict=False)]
    return kept, [one.eval() for one in (*sides, bodies[-1])]


def _checked(
    task: Task, plan: TrialPlan, kept: tuple[int, ...], chain: Chain, parts: list[nn.Module], names: list[str]
) -> dict[str, Any]:
    """Run the samples through ONNX Runtime: compare with PyTorch, set the thresholds, score."""
    multi, heads = task.loss == "multi-label", plan.heads
    blocks = [*(heads.exits[index].block for index in kept), plan.model.num_blocks]
    flops = [sum(one.flops for one in plan.model.blocks[:block]) for block in blocks]
    spent = Costs(tuple(map(float, flops)), tuple(float(head_flops(plan)[index]) for index in kept))
    pick = calibrating(task)
    outputs, worst = _compared(task, chain, parts, Subset(pick.samples, pick.indices))
    truth = truths(task, "local", outputs, pick.labels())
    temperature = fitted_temperature(outputs, truth, multi=multi)
    seen = Answers(confidences(outputs, temperature, multi=multi), rightness(outputs, truth, multi=multi))
    found = calibrate(
        seen, spent, tolerance=heads.tolerance, against=heads.against, per_exit=heads.per_exit, prune=False
    )
    seconds = _seconds(task, chain)
    splits = {"local_accuracy": task.local.val}
    if task.global_ is not None:
        splits["global_accuracy"] = task.global_.val
    if task.local.test is not None:
        splits["test_accuracy"] = task.local.test
    checks: dict[str, Any] = {}
    for name, samples in splits.items():
        outputs, difference = _compared(task, chain, parts, samples)
        worst = max(worst, difference)
        truth = truths(task, "global" if name == "global_accuracy" else "local", outputs, samples.labels)
        exits = leaves(confidences(outputs, temperature, multi=multi), found.chosen.thresholds)
        checks[name] = score(outputs[exits, np.arange(len(exits))], truth, multi=multi)
        if name == "local_accuracy":
            rates = np.bincount(exits, minlength=len(names)) / len(exits)
            checks |= {f"exit{number}_share": float(rate) for number, rate in enumerate(rates)}
            checks["mean_latency_seconds"] = float(rates @ seconds.leaving())
            checks["mean_flops"] = float(rates @ spent.leaving())
    if worst > TOLERANCE:
        raise BundleError(f"ONNX Runtime's logits differ by {worst:.2g} from PyTorch's, more than {TOLERANCE:g}")
    points = front(sweep(seen, seconds))
    exits_said = {
        "segments": names,
        "shares": (spent.leaving() / spent.leaving()[-1]).tolist(),
        "thresholds": list(found.chosen.thresholds),
        "temperature": temperature,
        "tolerance": heads.tolerance,
        "reference_accuracy": found.reference,
        "calibration_samples": len(pick),
        "labelled": task.labelled,
        "seconds": seconds.leaving().tolist(),
        "front": [{"threshold": one.thresholds[0] if one.thresholds else 1.0, "accuracy": one.accuracy,
                   "mean_latency_seconds": one.mean_cost} for one in points],
    }  # fmt: skip
    return {**checks, "largest_logit_difference": worst, "exits": exits_said}


def _compared(task: Task, chain: Chain, parts: list[nn.Module], samples: Samples) -> tuple[Logits, float]:
    """Return what every exit says by ONNX Runtime, and the largest difference from PyTorch's."""
    found, worst = [], 0.0
    for begin in range(0, len(samples), CHECK_BATCH):
        raw = np.stack([samples.load(index) for index in range(begin, min(begin + CHECK_BATCH, len(samples)))])
        batch = normalise(raw, task.input)
        theirs = chain.every(batch)
        value, ours = spatial(torch.from_numpy(batch)), []
        with torch.inference_mode():
            for part in parts[:-1]:
                value, logits = part(value)
                ours.append(logits)
            ours.append(parts[-1](value))
        worst = max(worst, float(np.abs(torch.stack(ours).numpy() - theirs).max()))
        found.append(theirs)
    return np.concatenate(found, axis=1), worst


def _seconds(task: Task, chain: Chain) -> Costs:
    """Return the seconds of one sample up to each exit, by ONNX Runtime; each segment holds its own head."""
    batch, found = normalise(task.local.val.load(0)[None], task.input), []
    for number in range(len(chain)):
        taken = []
        for _ in range(TIMED_RUNS):
            started = perf_counter()
            following, _ = chain.step(number, batch)
            taken.append(perf_counter() - started)
        found.append(median(taken))
        batch = following
    return Costs(tuple(np.cumsum(found).tolist()), (0.0,) * (len(found) - 1))
