"""MoIL's chain: full fine-tuning, then GDM(1 %), then + LF(1), then + cache, with its sweeps of α and n (chapter 4).

MobileNetV2, 96 px, batch 12 (which the thesis's own figures imply). A seed draws 360 clothing photos and 30 of each of
200 classes of ImageNet, of which GDM(1 %) takes one each: 0.56 of the local photos, 0.41 in the thesis. An arm trains 3
epochs at the learning rate, of three, that has the best mean of local and global accuracy on another draw's held-out
photos. Scores are of test photos, which choose nothing. Blocks that do not train run once for all arms, seeds and rates
(`+ LF(1)`, which has to show that this changes nothing, runs them in every epoch).

Intervals are of seeds, and a claim holds at the unfavourable end. Steps are measured interleaved; totals are samples ×
epochs × seconds a sample, extrapolated as the thesis does (150 epochs from scratch on all data, 60 of incremental
training), and count the filling.
"""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from benchmarks.lib.report import (
    Claim,
    Row,
    at_least,
    at_most,
    benchmark_parser,
    cheaper,
    finish,
    interleave,
    interval,
    points,
)
from benchmarks.lib.setup import clothing, first_of_each, known_of, opened, plan_for, stepper
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.backends.torch.trial.untouched import untouched
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.task import Domain, Subset, Task
from tuner.units import format_seconds

BATCH = 12
SCRATCH_EPOCHS, EPOCHS = 150, 60
SEEDS = (0, 1, 2, 3, 4, 5)
#: Of the draw that rates are chosen on.
CHOOSING = 100
#: Learning rates to choose from, by the number of blocks that train; None for the whole model.
RATES = {None: (1e-4, 3e-4, 1e-3), 6: (3e-4, 1e-3, 3e-3), 3: (3e-4, 1e-3, 3e-3), 1: (1e-3, 3e-3, 1e-2)}
#: The thesis's largest losses of global and of local accuracy.
GLOBAL_LOSS, LOCAL_LOSS = 0.073, 0.009
#: By multiply-adds, a step of the last layer costs a third of one of the whole model; one on stored features by how
#: much less the thesis measured.
STEP_LAST, STEP_STORED = 2.5, 15.7


@dataclass(frozen=True, slots=True)
class Lane:
    """How much is run.

    Attributes:
        size: Of an image, in pixels.
        local: Training photos of a seed.
        held: Held-out photos that rates are chosen on.
        known: Of each of the 200 classes: photos to mix in from, held-out and test photos.
        epochs: Of every arm.
        seeds: Of the arms.
        steps: Timed steps of each kind.
    """

    size: int = 96
    local: int = 360
    held: int = 200
    known: tuple[int, int, int] = (30, 2, 4)
    epochs: int = 3
    seeds: Sequence[int] = SEEDS
    steps: int = 30


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to train.

    Attributes:
        layers: Number of last blocks that train; None for all.
        alpha: Fraction of the global data that is mixed in.
        stored: Whether the frozen blocks' outputs are.
        rate_of: Arm whose learning rate it takes; none chooses its own.
        weighed: Whether all mixed-in samples together count as much as all local ones (`gdm.weight`).
        balance: Whether every batch has as many samples of one class as of another (`gdm.balance`).
    """

    layers: int | None
    alpha: float
    stored: bool = False
    rate_of: str = ""
    weighed: bool = False
    balance: bool = False


FULL, MIXED, LAST, CACHED = "full, GDM(0)", "full, GDM(1 %)", "+ LF(1)", "+ cache"
#: The sweep of α with the last layer, in addition to `CACHED`.
ALPHAS = {f"LF(1), GDM({100 * alpha:g} %)": alpha for alpha in (0.0, 0.1, 1.0)}
THREE, SIX = "LF(3), GDM(1 %)", "LF(6), GDM(1 %)"
WEIGHED, BALANCED = "LF(1), GDM(100 %), weighed", "LF(1), GDM(100 %), balanced"
ARMS = {
    FULL: Arm(None, 0.0),
    MIXED: Arm(None, 0.01),
    CACHED: Arm(1, 0.01, stored=True),
    LAST: Arm(1, 0.01, rate_of=CACHED),
    **{name: Arm(1, alpha, stored=True, rate_of=CACHED) for name, alpha in ALPHAS.items()},
    WEIGHED: Arm(1, 1.0, stored=True, rate_of=CACHED, weighed=True),
    BALANCED: Arm(1, 1.0, stored=True, rate_of=CACHED, balance=True),
    THREE: Arm(3, 0.01, stored=True),
    SIX: Arm(6, 0.01, stored=True),
}
CHAIN = (FULL, MIXED, LAST, CACHED)
#: Local and global accuracy of each seed, by arm; float64 [seeds, 2].
Scores = Mapping[str, npt.NDArray[np.float64]]


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    lane = Lane(96, 120, 60, (10, 1, 1), 1, SEEDS[:2], 4) if asked.quick else Lane()
    photos = clothing(lane.size)
    loaded = load(photos)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        store = Path(folder)
        rates = _rates(opened(draw(photos, lane, CHOOSING, tested=False), None, loaded, store), lane)
        draws = {seed: opened(draw(photos, lane, seed, tested=True), None, loaded, store) for seed in lane.seeds}
        first = draws[lane.seeds[0]]
        given = untouched(first, DataPlan()).values["global_accuracy"]
        scores = {
            arm: np.array([_trained(here, arm, rates[arm], lane.epochs, seed) for seed, here in draws.items()])
            for arm in ARMS
        }
        seconds, totals = _costs(opened(first.task, None, loaded, Path(empty)), rates, lane)
    rows = [*_chain_rows(seconds, totals), *_score_rows(scores, given, rates)]
    finish("moil_chain", rows, [*quality(scores, given), *ratios(seconds)], asked.json)


def draw(photos: Task, lane: Lane, seed: int, *, tested: bool) -> Task:
    """Return the task with a seed's photos.

    Args:
        photos: All there are.
        lane: How many.
        seed: Of the draw.
        tested: Whether scores are of test photos; otherwise, of photos that are drawn after those to train on.
    """
    known = known_of(photos)
    random = np.random.default_rng(seed)
    own, held = np.split(random.permutation(len(photos.local.train))[: lane.local + lane.held], [lane.local])
    each, each_held, each_tested = lane.known
    orders = [random.permutation(np.flatnonzero(known.train.labels == row)) for row in np.unique(known.train.labels)]
    mixed = np.concatenate([order[:each] for order in orders])
    train, local_val = (Subset(photos.local.train, np.sort(rows)) for rows in (own, held))
    if tested:
        rows = first_of_each(known.val.labels, each_tested)
        return replace(
            photos,
            local=Domain(train, photos.local.val),
            global_=Domain(Subset(known.train, mixed), Subset(known.val, rows)),
        )
    rows = np.concatenate([order[each : each + each_held] for order in orders])
    global_ = Domain(Subset(known.train, mixed), Subset(known.train, rows))
    return replace(photos, local=Domain(train, local_val), global_=global_)


def _plan(here: Access, arm: str, rate: float, epochs: int) -> TrialPlan:
    loaded, own = here.loaded, ARMS[arm]
    cut = 0 if own.layers is None else loaded.info.num_blocks - own.layers
    frozen = own.layers is not None  # with its norms frozen, the whole model is at chance after as many steps
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, learning_rate=rate, freeze_bn=frozen)
    plan = plan_for(here.task, loaded, cut, bits=32 if own.stored else None, recipe=recipe, alpha=own.alpha)
    weight = plan.local_samples / plan.global_samples if own.weighed else 1.0
    return replace(plan, data=replace(plan.data, weight=weight, balance=own.balance))


def _trained(here: Access, arm: str, rate: float, epochs: int, seed: int) -> tuple[float, float]:
    """Return local and global accuracy after training from the given weights."""
    found = scored(here, _plan(here, arm, rate, epochs), seed)
    print(f"{arm}, {rate:g}, seed {seed}: {found[0]:.3f} local, {found[1]:.3f} global", file=sys.stderr, flush=True)
    return found


def scored(here: Access, plan: TrialPlan, seed: int) -> tuple[float, float]:
    """Return what a plan's training from the given weights scores: local and global."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(plan, seed, here.store, Path(folder) / "weights.safetensors")
        opened_task = OpenTask(here.task, load(here.task), Extensions(), EagerSteps)
        values = TailProcedure(trial, opened_task).carry_out().values
    return values["local_accuracy"], values["global_accuracy"]


def _rates(here: Access, lane: Lane) -> dict[str, float]:
    """Return each arm's learning rate: the one whose mean accuracy on held-out photos is best."""
    rates: dict[str, float] = {}
    for name, arm in ARMS.items():
        if arm.rate_of:
            rates[name] = rates[arm.rate_of]
            continue
        choices = RATES[arm.layers] if len(lane.seeds) == len(SEEDS) else RATES[arm.layers][1:2]
        means = {rate: sum(_trained(here, name, rate, lane.epochs, CHOOSING)) for rate in choices}
        rates[name] = max(means, key=lambda rate: means[rate])
    return rates


def _costs(here: Access, rates: Mapping[str, float], lane: Lane) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return seconds of single steps, rounds interleaved, and seconds in all, by arm of the chain."""
    plans = {name: _plan(here, name, rates[name], lane.epochs) for name in CHAIN}
    filling = fill(here, [plans[CACHED]])
    seconds = interleave({name: stepper(here, plan) for name, plan in plans.items()}, lane.steps)
    totals = {}
    for name, plan in plans.items():
        known = here.task.global_
        everything = len(here.task.local.train) + (len(known.train) if known else 0)
        work = SCRATCH_EPOCHS * everything if name == FULL else EPOCHS * plan.train_samples
        filled = plan.train_samples * filling.seconds / max(1, filling.records) if plan.cached else 0.0
        totals[name] = work * median(seconds[name]) / BATCH + filled
    return seconds, totals


def _chain_rows(seconds: Mapping[str, Sequence[float]], totals: Mapping[str, float]) -> list[Row]:
    before = [None, *totals.values()]
    return [
        {
            "chain": name, "ms an iteration": 1e3 * median(seconds[name]),
            "epochs counted": SCRATCH_EPOCHS if name == FULL else EPOCHS, "total": format_seconds(total),
            "times less": "" if last is None else f"{last / total:.1f}×",
        }
        for last, (name, total) in zip(before, totals.items(), strict=False)
    ]  # fmt: skip


def _score_rows(scores: Scores, given: float, rates: Mapping[str, float]) -> list[Row]:
    rows: list[Row] = [{"arm": "untouched model", "global accuracy": f"{100 * given:.1f}"}]
    for name, values in scores.items():
        local, known = (points(values[:, place]) for place in (0, 1))
        trains = "all" if ARMS[name].layers is None else str(ARMS[name].layers)
        row = {"arm": name, "blocks trained": trains, "rate": f"{rates[name]:g}"}
        rows.append({**row, "local accuracy": local, "global accuracy": known})
    return rows


def quality(scores: Scores, given: float) -> list[Claim]:
    """Return what accuracies show, each claim at the unfavourable end of its interval.

    Args:
        scores: Of every arm.
        given: The untouched model's global accuracy.
    """
    forgotten = {name: given - values[:, 1] for name, values in scores.items()}
    local = {name: values[:, 0] for name, values in scores.items()}
    sweep = [CACHED, *(name for name, alpha in ALPHAS.items() if alpha > 0)]
    costs = {name: local["LF(1), GDM(0 %)"] - local[name] for name in sweep}
    dearest = max(costs, key=lambda name: sum(interval(costs[name])))
    worst = max(sweep, key=lambda name: sum(interval(forgotten[name])))
    apart = (scores[LAST] - scores[CACHED]).T
    both = np.array(max((sign * part for part in apart for sign in (1, -1)), key=lambda part: sum(interval(part))))
    deepest = max((MIXED, SIX, THREE), key=lambda name: local[name].mean())
    weighed = min((WEIGHED, BALANCED), key=lambda name: sum(interval(local["LF(1), GDM(0 %)"] - local[name])))
    layers = (forgotten[THREE] - forgotten[CACHED], forgotten[MIXED] - forgotten[THREE])
    return [
        at_least(0.2, "the whole model, trained on local data alone, forgets at least 20 points",
                  "thesis: 69 points", forgotten[FULL]),
        at_most(0.0, "GDM(1 %) forgets at most half of what GDM(0) does, the whole model trained",
                 "this benchmark's own bound; thesis: 21.5 of 69 points", forgotten[MIXED] - forgotten[FULL] / 2),
        at_most(0.02, "GDM(1 %) costs at most 2 points of local accuracy, the whole model trained",
                 "thesis: at most 0.9 points", local[FULL] - local[MIXED]),
        at_most(GLOBAL_LOSS, "with LF(1) and GDM(1 %), at most 7.3 points are forgotten",
                 "thesis: 6.6 points, at most 7.3", forgotten[CACHED]),
        at_most(LOCAL_LOSS, "LF(1) costs at most 0.9 points of local accuracy against the best depth, at GDM(1 %)",
                 "thesis: at most 0.9 points, of the whole model", local[deepest] - local[CACHED],
                 f"the best is {deepest}"),
        at_most(LOCAL_LOSS, "stored features change local and global accuracy by at most 0.9 points",
                 "thesis: at most 0.9 points", both),
        at_most(GLOBAL_LOSS, "LF(1) forgets at most 7.3 points at every α above 0", "thesis: at most 7.3 points",
                 forgotten[worst], f"most with {worst}"),
        at_most(LOCAL_LOSS, "LF(1): no α costs more than 0.9 points of local accuracy against α = 0",
                 "thesis: at most 0.9 points", costs[dearest], f"most with {dearest}"),
        at_most(LOCAL_LOSS, "LF(1): nor do all global data where they weigh or come as often as the local ones",
                 "thesis: at most 0.9 points", local["LF(1), GDM(0 %)"] - local[weighed], f"the better is {weighed}"),
        at_least(0.0, "LF(1): all global data prevent more forgetting than 1 % do", "thesis: forgetting falls with α",
                  forgotten[CACHED] - forgotten["LF(1), GDM(100 %)"]),
        *(
            at_least(0.0, f"{few} forgets less than {many}, at GDM(1 %)", "thesis: 6.6 points, and 21.5 of all",
                      difference)
            for few, many, difference in zip(("LF(1)", "LF(3)"), ("LF(3)", "the whole model"), layers, strict=True)
        ),
    ]  # fmt: skip


def ratios(seconds: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Return what steps show: by how many times one is cheaper, at the lower end of the interval of its rounds."""
    return [
        cheaper("a step of the last layer is {}× cheaper than one of the whole model", seconds, MIXED, LAST, STEP_LAST,
                "thesis: 30.1× (slow backward kernels; 3× by multiply-adds)"),
        cheaper("a step on stored features is {}× cheaper than one behind frozen blocks", seconds, LAST, CACHED,
                STEP_STORED, "thesis: 15.7×"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
