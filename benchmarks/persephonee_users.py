"""The second part of `benchmarks.persephonee`: users, their exits, and what these cost and give."""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from benchmarks.report import Claim, Row, interleave, ratio
from benchmarks.setup import Held, clothing, opened, spread
from tuner.arrays import Floats
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.exits.heads import build_heads
from tuner.backends.torch.exits.inputs import cut_inputs
from tuner.backends.torch.exits.logits import exit_logits
from tuner.backends.torch.exits.steps import HeadsSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.selection import (
    Selection,
    calibration_selection,
    training_selections,
    whole_partition,
)
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.backends.torch.trial.inputs import tail_inputs
from tuner.ort.session import Session
from tuner.plan.heads import HeadsPlan
from tuner.plan.parts import CachePlan, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.cost import head_flops
from tuner.runtime.infer.calibration import (
    GRID,
    Answers,
    Costs,
    confidences,
    correctness,
    operating_point,
    sweep,
)
from tuner.runtime.train.exit_calibration import ExitCosts, calibrate_exits
from tuner.search.setting import cores
from tuner.task import Domain, Samples, Subset, Task
from tuner.task.info import task_info
from tuner.training.epoch import EpochLoop
from tuner.training.steps import Steps
from tuner_exits import placed

CHANNELS = 128
BATCH = 32
TIMED_RUNS = 15
ORDER_SLACK = 0.02
TOLERANCE = 0.01
OFFLINE = HeadsPlan(supervised=1.0, distilled=1.0)
ARMS = {
    "self-distilled": HeadsPlan(distilled=1.0),
    "with labels": HeadsPlan(supervised=1.0, distilled=1.0),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much the second part does.

    Attributes:
        pixels: Side of an image.
        exits: Side exits.
        per_class: Images of each class for the offline stage; the others, up to as many, are the users'.
        users: How many.
        images: A user's, to train and calibrate on.
        scored: A user's validation images.
        epochs: Of the offline stage.
        rounds: Epochs of a user's round.
        steps: That are timed.
    """

    pixels: int
    exits: int
    per_class: int
    users: int
    images: int
    scored: int
    epochs: int
    rounds: int
    steps: int


def users(size: Sizes) -> tuple[list[Row], list[Claim]]:
    """Train exits offline, then for every user; return the tables and the claims."""
    given = clothing(size.pixels, 1, 1)
    if given.global_ is None:
        raise ValueError("the clothing task has global data")
    known = len(given.head_rows)
    halves = [part(given.global_.train, size.per_class, begin) for begin in (0, size.per_class)]
    seen = Domain(halves[0], Subset(given.global_.val, range(size.scored)))
    base = replace(given, labels=given.labels[:known], local=seen, global_=None, local_labels=())
    here = opened(base)
    taps = placed(here.loaded.info, size.exits, CHANNELS)
    plan = planned(here, replace(OFFLINE, mode="exits-only", exits=taps), size.epochs)
    fill(here, [plan])
    torch.manual_seed(0)
    heads = build_heads(plan)
    final = here.loaded.tail(plan.cuts[-1]).eval()
    train(here, plan, heads, final, 0)
    costs = ort_costs(here, plan, heads)
    people = [user(base, halves[1], given.global_.val, size, seed) for seed in range(size.users)]
    figures = [
        personalised(task, here, plan, heads, final, costs, size.rounds, seed) for seed, task in enumerate(people)
    ]
    rows = [*accuracy_rows(plan, figures, costs), *threshold_rows(figures)]
    seconds = step_seconds(people[0], here, plan, heads, final, size)
    rows += [{"training step": name, "ms": 1e3 * median(found)} for name, found in seconds.items()]
    return rows, judged(figures, costs, seconds)


def part(samples: Samples, per_class: int, begin: int) -> Samples:
    """Return some images of every class, decoded once."""
    labels = samples.labels
    chosen = [np.flatnonzero(labels == one)[begin : begin + per_class] for one in np.unique(labels)]
    return Held(Subset(samples, np.sort(np.concatenate(chosen))))


def user(base: Task, train: Samples, val: Samples, size: Sizes, seed: int) -> Task:
    """Return a user's task: popularity p ∝ exp(−(rank − μ)² / 2σ²), σ = K/10, classes in an order of her own."""
    generator = np.random.default_rng((7, seed))
    count = len(base.labels)
    rank = generator.permutation(count)
    popularity = np.exp(-((rank - count / 2) ** 2) / (2 * (count / 10) ** 2))

    def drawn(samples: Samples, wanted: int) -> Samples:
        weights = popularity[samples.labels]
        wanted = min(wanted, len(samples))
        return Held(Subset(samples, np.sort(generator.choice(len(samples), wanted, False, weights / weights.sum()))))  # noqa: FBT003 - replace

    mine, scored = drawn(train, size.images), drawn(val, size.scored)
    occurring = tuple(int(row) for row in np.unique(mine.labels))
    return replace(base, name=f"user {seed}", local=Domain(mine, scored), local_labels=occurring)


def planned(here: Access, heads: HeadsPlan, epochs: int) -> TrialPlan:
    """Return a plan of exits alone; AdamW, as the paper's SGD at 0.01 has not moved new heads after so few steps."""
    info = here.loaded.info
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, optimiser="adamw", learning_rate=2e-3)
    return TrialPlan(
        model=info, task=task_info(here.task), split=info.num_blocks, heads=heads, recipe=recipe,
        cache=CachePlan("cache", 8), runtime=RuntimePlan(threads=cores()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Of one user, by arm: accuracy of every exit, the calibrated policy's accuracy and seconds, and the sweep.

    Attributes:
        exits: Accuracy of each exit and of the final head on validation images.
        policy: (accuracy, mean seconds, mean FLOPs share) at the calibrated threshold.
        swept: (accuracy, mean seconds) on validation images, by global threshold of the grid, with all exits.
    """

    exits: dict[str, list[float]]
    policy: dict[str, tuple[float, float, float]]
    swept: dict[str, list[tuple[float, float]]]


def personalised(
    task: Task, offline: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, costs: ExitCosts,
    rounds: int, seed: int,
) -> Figures:  # fmt: skip
    """Train a user's exits from the offline ones, by each arm, and score them."""
    here = opened(task, loaded=offline.loaded)
    fill(here, [planned(here, plan.heads, 1)])
    figures = Figures({}, {}, {})
    for arm, loss in {"before": None, **ARMS}.items():
        own = copy.deepcopy(heads)
        taught = loss if loss is not None else OFFLINE
        mine = planned(here, replace(taught, mode="exits-only", exits=plan.heads.exits), rounds)
        if loss is not None:
            train(here, mine, own, final, seed)
        held, scored = (
            outputs(here, mine, own, final, pick)
            for pick in (calibration_selection(task), whole_partition(task, "local.val"))
        )
        truth = calibration_selection(task).labels()
        if arm != "with labels":  # without labels, agreement with the final head is all there is to calibrate on
            truth = held[-1].argmax(axis=-1)
        calibration = calibrate_exits(held, truth, mine.heads, costs, multi=False, prune=True)
        right = correctness(scored, task.local.val.labels, multi=False)
        seen = Answers(confidences(scored, calibration.temperature), right)
        few, left = seen.select(calibration.kept), costs.select(calibration.kept)
        at = operating_point(few, left.seconds, calibration.thresholds)
        share = operating_point(few, left.flops, calibration.thresholds).mean_cost / left.flops.reached[-1]
        figures.exits[arm] = right.mean(axis=1).tolist()
        figures.policy[arm] = at.accuracy, at.mean_cost, share
        figures.swept[arm] = [(one.accuracy, one.mean_cost) for one in sweep(seen, costs.seconds)]
    return figures


def heads_steps(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module) -> HeadsSteps:
    """Return the training steps of some heads."""
    inputs = cut_inputs(here, plan, training_selections(here.task, plan), exact=False)
    return HeadsSteps(plan, heads, final, inputs, multi=False)


def train(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, seed: int) -> None:
    """Train some heads for all of a plan's epochs."""
    samples = sum(map(len, training_selections(here.task, plan)))
    for _ in EpochLoop(heads_steps(here, plan, heads, final), plan.recipe, samples, seed).epochs():
        pass


def outputs(here: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, pick: Selection) -> Floats:
    """Return what every exit says of some samples."""
    return exit_logits(plan, heads, final, cut_inputs(here, plan, [pick], exact=True))


def ort_costs(here: Access, plan: TrialPlan, heads: nn.ModuleList) -> ExitCosts:
    """Return what it costs to leave at each exit: seconds of one image by ONNX Runtime, and FLOPs."""
    chain = here.loaded.chain
    if chain is None:
        raise ValueError("MobileNetV2 can be cut")
    blocks = [one.block for one in plan.heads.exits]
    edges = [chain.split_position(split) for split in (0, *blocks, plan.model.num_blocks)]
    value, bodies, sides = torch.zeros(2, *here.task.input_shape), [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, (begin, end) in enumerate(pairwise(edges)):
            part = chain.part(begin, end).eval()
            bodies.append(_alone(part, value, Path(folder) / "part.onnx"))
            with torch.inference_mode():
                value = part(value).clone()
            if number < len(heads):
                sides.append(_alone(heads[number].eval(), value, Path(folder) / "head.onnx"))
    flops = [sum(one.flops for one in plan.model.blocks[:block]) for block in (*blocks, plan.model.num_blocks)]
    seconds = Costs(tuple(np.cumsum(bodies).tolist()), tuple(sides))
    return ExitCosts(seconds, Costs(tuple(map(float, flops)), tuple(map(float, head_flops(plan)))))


def _alone(module: nn.Module, value: torch.Tensor, path: Path) -> float:
    """Return the median seconds of a module on one sample by ONNX Runtime."""
    write_onnx(module, value, path, ["logits"])
    session, batch, taken = Session(path), value[:1].numpy(), []
    for _ in range(TIMED_RUNS):
        started = perf_counter()
        session.logits(batch)
        taken.append(perf_counter() - started)
    return median(taken)


def step_seconds(
    task: Task, offline: Access, plan: TrialPlan, heads: nn.ModuleList, final: nn.Module, size: Sizes
) -> dict[str, list[float]]:
    """Time steps of batch 32, interleaved: of the whole model, of the exits with and without stored features."""
    here = opened(task, loaded=offline.loaded)
    stored = planned(here, replace(ARMS["self-distilled"], mode="exits-only", exits=plan.heads.exits), 1)
    fill(here, [stored])
    plans = {"exits, stored features": stored, "exits, no store": replace(stored, cache=CachePlan())}
    steps = {name: heads_steps(here, one, copy.deepcopy(heads), final) for name, one in plans.items()}
    whole = replace(stored, heads=HeadsPlan(), split=0, cache=CachePlan())
    rows = tail_inputs(here.task, here.loaded, 0, training_selections(here.task, whole), None)
    full = EagerSteps(here.task, whole, copy.deepcopy(here.loaded.model), rows, 0)
    selected = training_selections(here.task, stored)
    generator, count = np.random.default_rng(0), sum(map(len, selected))

    def stepping(steps: Steps) -> Callable[[], float]:
        steps.begin_epoch()
        return lambda: steps.step(generator.permutation(count)[:BATCH], whole.recipe.learning_rate)

    arms = {"whole model": stepping(full), **{name: stepping(own) for name, own in steps.items()}}
    return interleave(arms, size.steps)


def accuracy_rows(plan: TrialPlan, figures: list[Figures], costs: ExitCosts) -> list[Row]:
    """Return the mean over users of every exit's accuracy, and of what the calibrated policy gives."""
    names = [plan.model.blocks[one.block - 1].name for one in plan.heads.exits]
    rows: list[Row] = []
    for arm in figures[0].exits:
        exits = np.mean([one.exits[arm] for one in figures], axis=0)
        policy = np.mean([one.policy[arm] for one in figures], axis=0)
        rows.append(
            {
                "exits": arm,
                **{f"after {name}": float(value) for name, value in zip(names, exits, strict=False)},
                "final head": float(exits[-1]),
                "calibrated": float(policy[0]),
                "ms": 1e3 * float(policy[1]),
                "times faster": costs.seconds.reached[-1] / float(policy[1]),
                "share of FLOPs": float(policy[2]),
            }
        )
    return rows


def threshold_rows(figures: list[Figures]) -> list[Row]:
    """Return accuracy against mean latency by threshold, the mean over users."""
    rows: list[Row] = []
    for at, threshold in list(enumerate(GRID))[::2]:
        row: dict[str, object] = {"threshold": threshold}
        for arm in figures[0].swept:
            mean = np.mean([one.swept[arm][at] for one in figures], axis=0)
            row |= {f"{arm}: accuracy": float(mean[0]), f"{arm}: ms": 1e3 * float(mean[1])}
        rows.append(row)
    return rows


def judged(figures: list[Figures], costs: ExitCosts, seconds: dict[str, list[float]]) -> list[Claim]:
    """Hold latency, accuracy and training time against their bounds."""
    claims = [_ordered(figures)]
    for arm, bound, goal in (("with labels", 1.5, "3.2×"), ("self-distilled", 1.3, "2.2×")):
        drop = [one.exits[arm][-1] - one.policy[arm][0] for one in figures]
        faster = costs.seconds.reached[-1] / float(np.mean([one.policy[arm][1] for one in figures]))
        met = bool(np.mean(drop) <= TOLERANCE) and faster >= bound
        deepest = spread([one.exits[arm][-2] for one in figures])
        whole = spread([one.exits[arm][-1] for one in figures])
        why = "" if met else f"the last side exit reaches {deepest}, the final head {whole}: so few images teach it"
        said = f"{faster:.2f}×, drop {spread(drop)}"
        claim = f"exits {arm}: mean latency ≥ {bound}× lower, accuracy drop ≤ 1 point"
        claims.append(Claim(claim, f"PersEPhonEE: {goal}", said, "quality", met, why))
    for name, bound in (("exits, stored features", 10.0), ("exits, no store", 2.0)):
        times = median(seconds["whole model"]) / median(seconds[name])
        said = ratio(seconds, "whole model", name)
        why = "" if times >= bound else "the heads' own forward and backward pass take what is left"
        claims.append(Claim(f"a training step of {name} is ≥ {bound:g}× faster than of the whole model",
                            "PersEPhonEE: 2× to 22.7×", said, "ratio", times >= bound, why))  # fmt: skip
    return claims


def _ordered(figures: list[Figures]) -> Claim:
    """Hold the order of the arms on the first three exits, with two points of slack."""
    arms = ("before", *ARMS)
    means = {arm: np.mean([one.exits[arm][:3] for one in figures], axis=0) for arm in arms}
    steps = [float((means[better] - means[worse]).min()) for worse, better in pairwise(arms)]
    said = f"smallest gain of an exit: {steps[0]:+.3f} by distillation, {steps[1]:+.3f} by labels beside it"
    claim = "each of the first three exits: with labels ≥ self-distilled ≥ before, 2 points of slack"
    return Claim(
        claim, "PersEPhonEE: labels give 15.9 points at its last side exit", said, "quality", min(steps) >= -ORDER_SLACK
    )
