"""Twenty plans of one study with the feature store, and the same plans with ``cache.by = none``.

Plans are drawn at random from the space `board-10min`, for the clothing task. With the store, everything is done for
real, on an empty store: one filling pass, then every plan trained and scored. Without, each plan runs some steps and
scores some samples from files, interleaved with the same of the other arm, and epochs are extrapolated from them.

Then one plan with 32-bit records beside its twin, which holds the prefix's outputs in memory; how much of the bare
prefix's throughput a filling pass reaches, with decoded samples in memory for both; and what filling and reading all
records of two cuts takes of the process's private memory (RssAnon).
"""

import copy
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave
from benchmarks.lib.setup import clothing, open_session, opened, plan_for
from tuner.backends.base import Trial
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.engines import prefix_engine
from tuner.backends.torch.features.fill import fill
from tuner.backends.torch.features.prefix import batches
from tuner.backends.torch.features.reader import Reader
from tuner.backends.torch.features.selection import (
    training_selections,
    validation_selections,
    whole_partition,
)
from tuner.backends.torch.model.open.load import OpenModel, load
from tuner.backends.torch.trial.inputs import (
    TailInputs,
    augmenting,
    stored_inputs,
    training_inputs,
    validation_inputs,
)
from tuner.backends.torch.trial.opened import OpenTask, TailTraining
from tuner.backends.torch.trial.scoring import score
from tuner.backends.torch.trial.tail import TailProcedure
from tuner.plan.parts import CachePlan, RecipePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.device import FILL_BATCH
from tuner.plugin.compose import compose
from tuner.plugin.core import build_host
from tuner.plugin.sources import random_values
from tuner.processors import usable_processors
from tuner.search.setting import participants
from tuner.search.space import load_space
from tuner.task import Task
from tuner.task.info import task_info
from tuner.training.epoch import EpochLoop

PLANS = 20
SCORED = 64
BOUND = 5.0
SAME = 1e-6
FILLED = (14, 17)  # after f13 and after f16
ROUNDS = 3
FILL_SHARE = 0.85
PRIVATE_BYTES = 300_000_000


def main() -> None:
    """Measure, print, write."""
    asked = benchmark_parser(__doc__).parse_args()
    size, local, count, steps = (96, 200, 5, 2) if asked.quick else (160, None, PLANS, 4)
    here = opened(clothing(size, local))
    plans = list(drawn(here, count))
    started = time.perf_counter()
    filling = fill(here, plans)
    filled = time.perf_counter() - started
    rows: list[Row] = []
    with_store, without = filled, 0.0
    for number, plan in enumerate(plans):
        single, stored = _extrapolated(here, plan, steps)
        real = _trained(here, plan)
        with_store += real
        without += single
        rows.append(
            {
                "plan": number,
                "last": plan.trainable,
                "bits": plan.cache.bits,
                "epochs": plan.recipe.epochs,
                "samples": plan.train_samples,
                "store s (measured)": real,
                "store s (extrapolated)": stored,
                "none s (extrapolated)": single,
            }
        )
    rows.append({"plan": "filling", "samples": filling.records, "store s (measured)": filled})
    rows.append({"plan": "all", "store s (measured)": with_store, "none s (extrapolated)": without})
    rate = without / with_store
    why = "" if rate >= BOUND else "training the tails takes most of the time; see the rows"
    claims = [
        Claim(
            f"{len(plans)} plans take at most 1/{BOUND:g} of the time with the store, filling included",
            "project's bound",
            f"{rate:.1f}×: {with_store:.0f} s against {without:.0f} s",
            rate >= BOUND,
            why,
        ),
        _twins(here, plans[0]),
    ]
    for row, claim in (_throughput(size, local), _memory(size, local)):
        rows.append(row)
        claims.append(claim)
    finish("shared_store", rows, claims, asked.json)


def drawn(here: Access, count: int) -> Iterator[TrialPlan]:
    """Yield distinct plans of the space, drawn with a seed."""
    space = load_space("board-10min")
    strategies, _ = participants(build_host(), space)
    draw = random_values(random.Random(0))
    wanted = {"runtime.threads": usable_processors(), "runtime.precision": "fp32", **space.knobs}
    seen: set[str] = set()
    while len(seen) < count:
        plan = compose(strategies, draw, here.loaded.info, task_info(here.task), wanted).plan
        if plan.key() not in seen:
            seen.add(plan.key())
            yield plan


def _trained(here: Access, plan: TrialPlan) -> float:
    """Train and score a plan for real; return its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        task = OpenTask(here.task, load(here.task), Extensions(), EagerSteps)  # a trial changes the tail it is given
        started = time.perf_counter()
        TailProcedure(Trial(plan, 0, here.store, Path(folder) / "weights.safetensors"), task).carry_out()
        return time.perf_counter() - started


def _extrapolated(here: Access, plan: TrialPlan, steps: int) -> tuple[float, float]:
    """Return the plan's seconds without and with the store, from a few interleaved steps and scored samples."""
    single = replace(plan, cache=CachePlan(augment=plan.cache.augment))
    arms = {"none": _arm(here, single), "store": _arm(here, plan)}
    step = interleave({name: pair[0] for name, pair in arms.items()}, steps, warmup=1)
    scoring = interleave({name: pair[1] for name, pair in arms.items()}, 1, warmup=0)
    total = plan.recipe.epochs * plan.train_samples / plan.recipe.batch_size
    samples = (plan.task.local_val + plan.task.global_val) / SCORED
    none, store = (median(step[name]) * total + median(scoring[name]) * samples for name in ("none", "store"))
    return none, store


def _arm(here: Access, plan: TrialPlan) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return one training step, and the scoring of some samples."""
    task, loaded = here.task, here.loaded
    picks = training_selections(task, plan)
    tail = copy.deepcopy(loaded.tail(plan.split))
    rows = training_inputs(here, plan, picks, augmenting(task, plan, np.random.default_rng((0, 1))))
    steps = EagerSteps(TailTraining(task, plan, tail, rows, 0))
    generator = np.random.default_rng(0)
    scored = validation_inputs(here, plan)["local"]
    scored = replace(scored, labels=scored.labels[:SCORED])

    def step() -> None:
        steps.begin_epoch()
        steps.step(generator.permutation(len(rows.labels))[: plan.recipe.batch_size], plan.recipe.learning_rate)

    return step, lambda: score(task, tail, scored)


def _twins(here: Access, like: TrialPlan) -> Claim:
    """Train on 32-bit records, and on the prefix's outputs held in memory."""
    plan = replace(like, cache=CachePlan("cache", 32))
    fill(here, [plan])
    picks = training_selections(here.task, plan)
    memory: dict[str, np.ndarray] = {}
    prefix = here.prefix([plan.split])
    wanted = {pick.partition: {int(index) for index in pick.indices} for pick in picks}
    samples = {pick.partition: pick.samples for pick in picks}
    for batch, outputs in prefix.over(list(batches(here.task, wanted))):
        for index, value in zip(batch.indices, outputs[plan.split], strict=True):
            memory[samples[batch.partition].sample_id(index)] = value
    ids = [one for pick in picks for one in pick.ids()]
    stored = stored_inputs(Reader(here, plan.split, 32, picks), picks)
    held = TailInputs(lambda rows: torch.from_numpy(np.stack([memory[ids[row]] for row in rows])), stored.labels)
    found = [_losses_and_score(here, plan, rows) for rows in (stored, held)]
    apart = max(abs(a - b) for a, b in zip(*found, strict=True))
    said = f"losses and local accuracy differ by {apart:.1e} at most"
    return Claim("a 32-bit store gives what a twin in memory gives, to 1e-6", "equality", said, apart <= SAME)


def _throughput(size: int, local: int | None) -> tuple[Row, Claim]:
    """Fill two cuts of an empty store, in turns with the bare prefix on ready batches."""
    task = clothing(size, local, local, held=True)
    loaded = load(task)
    kind = open_session(TorchBackend(), task).measure(usable_processors()).prefix_kind
    plans = [_fitting(task, loaded, split) for split in FILLED]
    run_prefix = prefix_engine(loaded, FILLED, kind, usable_processors())
    train = task.local.train
    ready = [
        task.batch(train, (index % len(train) for index in range(begin, begin + FILL_BATCH)))
        for begin in range(0, len(train), FILL_BATCH)
    ]
    bare, filling = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for batch in ready:
            run_prefix(batch)
        bare.append(len(ready) * FILL_BATCH / (time.perf_counter() - started))
        filled = fill(opened(task, kind, loaded), plans)
        filling.append(filled.records / filled.seconds)
    share = median(filling) / median(bare)
    row = {"prefix": kind, "bare images/s": median(bare), "filling images/s": median(filling), "share": share}
    said = f"{100 * share:.0f} %: {median(filling):.0f} of {median(bare):.0f} images a second"
    claim = (
        "filling an empty store reaches 85 % of the bare prefix's throughput, calibrating, coding and writing included"
    )
    return row, Claim(claim, "project's bound", said, share >= FILL_SHARE)


def _memory(size: int, local: int | None) -> tuple[Row, Claim]:
    """Fill two cuts with everything there is and read it back, watching the private memory."""
    task = clothing(size, local)
    loaded = load(task)
    here = opened(task, None, loaded)
    resting, most, seconds = _private_bytes(), 0, time.perf_counter()

    def watch(_: object) -> bool:
        nonlocal most
        most = max(most, _private_bytes())
        return False

    plans = [_fitting(task, loaded, split, 1.0 if local is None else 0.02) for split in FILLED]
    fill(replace(here, report=watch), plans)
    records = 0
    for plan in plans:
        for bits, picks in ((8, training_selections(task, plan)), (16, validation_selections(task))):
            reader = Reader(here, plan.split, bits, picks)
            ids = [one for pick in picks for one in pick.ids()]
            for begin in range(0, len(ids), 64):
                reader.read(ids[begin : begin + 64])
                watch(None)
            records += len(ids)
    took = most - resting
    row = {"records": records, "RssAnon MB over rest": took / 1e6, "seconds": time.perf_counter() - seconds}
    text = f"filling and reading {records:,} records takes at most {PRIVATE_BYTES // 10**6} MB of private memory"
    return row, Claim(text, "project's bound", f"{took / 1e6:.0f} MB", took <= PRIVATE_BYTES)


def _fitting(task: Task, loaded: OpenModel, split: int, alpha: float = 0.1) -> TrialPlan:
    return plan_for(task, loaded, split, bits=8, recipe=RecipePlan(), alpha=alpha)


def _private_bytes() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def _losses_and_score(here: Access, plan: TrialPlan, rows: TailInputs) -> list[float]:
    tail = copy.deepcopy(here.loaded.tail(plan.split))
    torch.manual_seed(0)
    loop = EpochLoop(EagerSteps(TailTraining(here.task, plan, tail, rows, 0)), plan.recipe, len(rows.labels), 0)
    losses = [loop.epoch(epoch).loss for epoch in range(2)]
    exact = Reader(here, plan.split, 16, validation_selections(here.task))
    local = stored_inputs(exact, [whole_partition(here.task, "local.val")])
    return [*losses, score(here.task, tail, local)]


if __name__ == "__main__":
    main()
