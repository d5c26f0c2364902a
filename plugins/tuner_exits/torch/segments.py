"""Export with exits: a chain of ONNX files, one for each exit, each weight once; calibrated again as it will run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from tuner.backends.base import Exported, silent
from tuner.backends.torch.export.check import Check, scored_partitions
from tuner.backends.torch.export.whole import trained_tail
from tuner.backends.torch.features.selection import withheld_selection
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.trial.choice import trained_on
from tuner.backends.torch.trial.opened import OpenTask
from tuner.bundle.format import WEIGHTS
from tuner.bundle.info import Section
from tuner.errors import BundleError, first_line
from tuner.ort.session import FEATURES, LOGITS
from tuner.plan.trial import TrialPlan
from tuner.runtime.infer.calibration import Costs, exits_taken
from tuner.runtime.infer.chain import Chain
from tuner.runtime.train.calibration import ExitCosts, calibrate_exits
from tuner.runtime.train.files import EXIT_WEIGHTS
from tuner.store.store import Store
from tuner.task import Subset, Task
from tuner.training.epochs import Report
from tuner_exits.torch.calibrate import bodies, branch, exit_flops, truths, typical
from tuner_exits.torch.heads import build_heads, complete, learned
from tuner_exits.torch.trainable import write_trainable_exits
from tuner_exits.torch.weights import ExitWeights

TIMED_RUNS = 7


class Segment(nn.Module):
    """The blocks up to an exit, and the exit."""

    def __init__(self, body: nn.Module, side: nn.Module) -> None:
        super().__init__()
        self.body, self.side = body, side

    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next segment's input and the exit's logits of float32 [n, ...]."""
        features = self.body(value)
        return features, self.side(features)


def export(
    opened: OpenTask,
    plan: TrialPlan,
    weights: Path,
    folder: Path,
    *,
    trainable: bool = False,
    store: Store | None = None,  # noqa: ARG001 - exits are scored from pixels
    report: Report = silent,
) -> Exported:
    """Write ``segments/N.onnx``, ``weights.safetensors`` and ``exits.safetensors``; see `Session.export`.

    Thresholds and temperatures are set again on the withheld samples from pixels, by ONNX Runtime: a trial sets them
    on stored features. Those that come from all samples out of fold are the trial's, and so are those of a bundle that
    ends with an exit. With `trainable` the exits' weights keep their names, so that those trained later can take their
    place; see `tuner_exits.torch.trainable`. Where calibration has kept no exit, there is nothing to
    train.

    Raises:
        BundleError: A segment cannot be written as ONNX, or ONNX Runtime computes something else.
    """
    task, model = opened.task, opened.model
    torch.set_num_threads(plan.runtime.threads)
    trained = ExitWeights.read(weights)
    if plan.heads.drops:
        trained = trained.reached()
    tail, records = _trained_tail(opened, plan, trained)
    kept, segments = trained.calibration.kept, restored(model, plan, trained, tail)
    if trainable and 0 in kept and plan.heads.small:
        raise BundleError(
            f"rounds train exits on what the blocks before them give, but the first is of {plan.heads.small} px: "
            "export without --trainable, or pick a trial without exits.small"
        )
    names = segment_names(len(segments))
    _write_segments(segments, names, task, folder, optimize=not trainable)
    sides = [learned(one.side) for one in segments if isinstance(one, Segment)]
    state = model.model.state_dict()
    if trained.ends:
        sides.append(learned(segments[-1][-1]))  # type: ignore[index]  # a body and its exit
        used = {value.data_ptr() for segment in segments for value in segment.state_dict().values()}
        state = {name: value for name, value in state.items() if value.data_ptr() in used}
    save_file({name: value.contiguous() for name, value in state.items()}, folder / WEIGHTS)
    heads = {f"{at}.{name}": value for at, side in enumerate(sides) for name, value in side.state_dict().items()}
    if heads:
        save_file({name: value.contiguous() for name, value in heads.items()}, folder / EXIT_WEIGHTS)
    chain = Chain([folder / name for name in names], plan.model.outputs, threads=plan.runtime.threads)
    flops = exit_flops(model, plan, kept, tail, typical(task))
    checks, sections = _checked(task, plan, trained, chain, segments, flops, report)
    if records:
        sections[Section.EVOLVED.value] = records
    if trainable and kept:
        sections[Section.TRAIN.value] = write_trainable_exits(
            task, plan, kept, chain, sides, trained_on(task, plan, weights), folder, trained.sums
        )
    return Exported(checks, sections)


def segment_names(count: int) -> list[str]:
    """Return the files of a bundle's segments."""
    return [f"segments/{number}.onnx" for number in range(count)]


def _trained_tail(opened: OpenTask, plan: TrialPlan, trained: ExitWeights) -> tuple[nn.Module, dict[str, Any]]:
    """Return a trial's tail with its weights, empty where none trained, and what a bundle records of its edits."""
    if not plan.trainable:
        return nn.Module(), {}
    edits = trained_tail(opened, plan, trained.tail)
    edits.tail.load_state_dict(trained.tail)
    return edits.tail, edits.records(opened.model.model)


def restored(model: OpenModel, plan: TrialPlan, trained: ExitWeights, tail: nn.Module) -> list[nn.Module]:
    """Return a trial's model as segments; the last gives logits alone."""
    heads = build_heads(plan)
    for index, state in zip(trained.calibration.kept, trained.heads, strict=True):
        heads[index].load_state_dict(state)
    kept = trained.calibration.kept
    *inner, last = bodies(model, plan, [branch(plan.heads.exits[index]) for index in kept], tail)
    sides = complete(model, plan, heads)
    segments = [Segment(body, sides[index]) for body, index in zip(inner, kept, strict=True)]
    if trained.ends:
        last = nn.Sequential(segments[-1].body, segments.pop().side)
    return [segment.eval() for segment in (*segments, last)]


def _write_segments(
    segments: Sequence[nn.Module], names: Sequence[str], task: Task, folder: Path, *, optimize: bool
) -> None:
    """Write a file for each segment."""
    (folder / "segments").mkdir(mode=0o700)
    sample = torch.from_numpy(task.batch(task.local.val, [0]))
    value = torch.cat([sample, sample])
    for name, segment in zip(names, segments, strict=True):
        is_last = name == names[-1]
        try:
            write_onnx(segment, value, folder / name, [LOGITS] if is_last else [FEATURES, LOGITS], optimize=optimize)
        except OSError:
            raise  # of a full disk, not of the model
        except Exception as error:  # the exporter raises many kinds
            reason = first_line(error)
            raise BundleError(f"{name} cannot be written as ONNX ({reason}): pick a trial without exits") from error
        with torch.inference_mode():
            value = value if is_last else segment(value)[0].clone()


def _checked(
    task: Task,
    plan: TrialPlan,
    trained: ExitWeights,
    chain: Chain,
    segments: Sequence[nn.Module],
    flops: Costs,
    report: Report,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Run the samples through ONNX Runtime: compare with PyTorch, set the thresholds, score."""

    def original(batch: torch.Tensor) -> torch.Tensor:
        value, logits = batch, []
        for segment in segments[:-1]:
            value, of_exit = segment(value)
            logits.append(of_exit)
        return torch.stack([*logits, segments[-1](value)])

    names, whole = segment_names(len(segments)), float(flops.cumulative()[-1])
    if trained.ends:
        flops = Costs(tuple(flops.cumulative()[:-1].tolist()), (0.0,) * (len(names) - 1))
    costs = ExitCosts(seconds=_seconds(task, chain), flops=flops)
    calibration, partitions = trained.calibration, scored_partitions(task)
    selection = withheld_selection(task, plan.data)
    withheld = Subset(selection.samples, selection.indices)
    is_unseen = not (calibration.out_of_fold or trained.ends or plan.heads.gated)
    check = Check(task, chain.every, original, report, {**partitions, **({"withheld": withheld} if is_unseen else {})})
    if is_unseen:
        logits = check.logits(withheld)
        truth, labelled = truths(task, "local", logits, selection.labels()), task.labelled
        calibration = calibrate_exits(
            logits, truth, plan.heads, costs.flops, kind=task.targets, prune=False, labelled=labelled
        )
    divisors = np.array(calibration.temperatures)
    for name, samples in partitions.items():
        logits = check.logits(samples)
        truth = truths(task, "global" if name == "global_accuracy" else "local", logits, samples.labels)
        exits = exits_taken(task.targets.confidences(logits, calibration.temperatures), calibration.thresholds)
        left = logits[exits, np.arange(len(exits))]
        check.score(name, samples, left, truth, (left / divisors[exits][:, None]).astype(np.float32))
        if name == "local_accuracy":
            rates = np.bincount(exits, minlength=len(names)) / len(exits)
            check.scores |= {f"exit{number}_share": float(rate) for number, rate in enumerate(rates)}
            check.scores["mean_latency_seconds"] = float(rates @ costs.seconds.cumulative())
            check.scores["mean_flops"] = float(rates @ costs.flops.cumulative())
    sample = torch.from_numpy(task.batch(task.local.val, [0]))
    policy = calibration.policy(names, costs, labelled=task.labelled, whole=whole)
    with suppress(fx.proxy.TraceError):  # samples take different ways: how much each takes is not known
        policy = replace(policy, peak_bytes=tuple(_peak_bytes(segments, sample)))
    sections = {Section.EXITS.value: policy.to_dict(), **check.sections()}
    return {**check.scores, "largest_logit_difference": check.largest_difference()}, sections


class _LiveTensors(fx.Interpreter):
    """Runs a graph, and keeps the most bytes that its tensors take at once; weights are not counted."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.peak_bytes = 0
        self._weights = {value.untyped_storage().data_ptr() for value in graph.state_dict().values()}

    def run_node(self, node: fx.Node) -> Any:
        """Run a node; what it reads is alive until then."""
        value = super().run_node(node)
        leaves = [leaf for leaf in tree_leaves([value, *self.env.values()]) if isinstance(leaf, torch.Tensor)]
        sizes = {own.untyped_storage().data_ptr(): own.untyped_storage().nbytes() for own in leaves}
        self.peak_bytes = max(self.peak_bytes, sum(size for at, size in sizes.items() if at not in self._weights))
        return value


def _peak_bytes(segments: Sequence[nn.Module], sample: torch.Tensor) -> Iterator[int]:
    """Yield the memory of one sample that leaves at each exit; an exit's head reads what the next segment does."""
    value, weights, most = sample, dict[int, int](), 0
    for segment in segments:
        body, *side = [segment] if isinstance(segment, fx.GraphModule) else segment.children()
        for part in (body, *side):
            run = _LiveTensors(part if isinstance(part, fx.GraphModule) else fx.symbolic_trace(part))
            with torch.inference_mode():
                given = run.run(value)
            value, most = given if part is body else value, max(most, run.peak_bytes)
        weights |= {own.data_ptr(): own.numel() * own.element_size() for own in segment.state_dict().values()}
        yield sum(weights.values()) + most


def _seconds(task: Task, chain: Chain) -> Costs:
    """Return the seconds of one sample up to each exit, by ONNX Runtime; each segment holds its own head."""
    features, medians = task.batch(task.local.val, [0]), []
    for number in range(len(chain)):
        seconds = []
        for _ in range(TIMED_RUNS):
            started = perf_counter()
            following, _ = chain.step(number, features)
            seconds.append(perf_counter() - started)
        medians.append(median(seconds))
        features = following
    return Costs(tuple(np.cumsum(medians).tolist()), (0.0,) * (len(medians) - 1))
