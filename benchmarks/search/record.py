"""Record the tables that `benchmarks.search.table` replays: every plan of a grid, really trained on every rung.

A table's plans are every combination of the knobs in `benchmarks/search/tables/NAME.toml`, where each knob has a few
values. Features are filled first and do not count; a trial's seconds are those of its process: start, training,
scoring.
"""

import gzip
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.lib.places import DATA, EXAMPLES
from benchmarks.lib.setup import CLOTHING
from tuner.backends.base import Trial
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.planner.price import price
from tuner.plugin.compose import Composed, compose
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.knobs import Wanted
from tuner.plugin.sources import corners
from tuner.plugin.strategy import Strategy
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.remote import open_remote
from tuner.search.rungs import LOWEST, at_rung
from tuner.search.setting import participants, wanted_knobs
from tuner.search.space import Space, load_space
from tuner.store.store import Store
from tuner.task import open_task
from tuner.task.info import task_info

TABLES = Path(__file__).parent / "tables"
TASKS = {"clothing": str(CLOTHING), "digits": "digits", "emg": str(EXAMPLES / "emg" / "task.toml")}
#: What is kept of a plan on a rung, in this order; `expected` are the seconds foreseen before the trial.
KEPT = ("local_accuracy", "global_accuracy", "train_seconds", "peak_bytes", "seconds", "expected")
MOST_PLANS = 5000


def grid(
    strategies: Sequence[Strategy[Any]],
    model: ModelInfo,
    task: TaskInfo,
    wanted: dict[str, Wanted],
    *,
    equal: bool = False,
) -> list[Composed]:
    """Return the plan of every combination of the values of all knobs; of equal plans one, or all if `equal`."""
    plans: list[Composed] = []
    for _ in corners(lambda source: plans.append(compose(strategies, source, model, task, wanted)), most=MOST_PLANS):
        pass
    return plans if equal else list({one.plan.key(): one for one in plans}.values())


def table_space(host: Host, name: str) -> tuple[Space, list[Strategy[Any]], dict[str, Wanted]]:
    """Return a table's search space, the strategies that take part, and what is wanted of each knob."""
    space = load_space(str(TABLES / f"{name}.toml"))
    strategies, _ = participants(host, space)
    return space, strategies, wanted_knobs(space, "torch", deterministic=False)


def record(name: str) -> dict[str, Any]:
    """Train every plan of a table's grid on every rung, and return the table."""
    from tuner.search.estimate.rates import rates_of

    os.environ.setdefault("TUNER_DATA", str(DATA))
    host, limits = build_host(), JobLimits()
    task = open_task(TASKS[name], host.tasks)
    _, strategies, wanted = table_space(host, name)
    with tempfile.TemporaryDirectory() as folder, open_remote(host, TASKS[name], ["torch"], many_jobs=True) as opened:
        session, info = opened["torch"], task_info(task)
        rates = rates_of(session, "torch", measure=True)
        store = Store(Path(folder) / "store")
        plans = grid(strategies, session.model, info, wanted)
        widest = {one.plan.cuts: one.plan for one in sorted(plans, key=lambda one: one.plan.data.alpha)}
        session.try_fill(list(widest.values()), store, limits).unwrap("features")
        untouched = session.untouched(store, 2).values
        rows, started = [], time.monotonic()
        for number, one in enumerate(plans):
            scores, losses = [], []
            for rung in range(LOWEST + 1):
                plan = at_rung(one.plan, rung)
                begun = time.monotonic()
                job = Trial(plan, number, store, Path(folder) / "weights.safetensors")
                outcome = session.try_train(job, limits).unwrap("a trial")
                seconds = time.monotonic() - begun
                expected = price(plan, rates).estimate(missing=0).spend_seconds
                kept = {**outcome.values, "seconds": seconds, "expected": expected}
                scores.append([float(f"{kept[key]:.5g}") for key in KEPT])
                losses.append([float(f"{epoch['loss']:.4g}") for epoch in outcome.epochs])
            rows.append({"knobs": one.values, "rungs": scores, "losses": losses})
            left = (time.monotonic() - started) / (number + 1) * (len(plans) - number - 1)
            if number % 10 == 0:
                print(f"{name}: {number + 1} of {len(plans)} plans, {left:.0f} s left", flush=True)
        return {
            "name": name, "kept": KEPT, "model": asdict(session.model), "task": asdict(info), "rates": asdict(rates),
            "untouched": untouched, "plans": rows,
        }  # fmt: skip


def write(name: str) -> None:
    """Record a table and write it."""
    path = TABLES / f"{name}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record(name)).encode(), mtime=0))
    print(f"{path.name}: {path.stat().st_size:,} bytes")
