"""Adapters (bias-only, low-rank, sparse) against training all weights, and what mixed-in samples and a teacher bring.

Costs: the last 6 blocks of MobileNetV2 at 160 pixels, batch 32, AdamW, frozen norms, by the planned executor. Peaks are
of a fresh process each, the high-water mark of resident memory over its rest with libraries, weights and one batch
loaded; steps are timed in one process, arms in turns, medians. How far peaks are from planned ones is the subject of
`benchmarks.models.memory`.

Accuracy and forgetting: trials on the clothing photos, 8-bit features, each in a process of its own, as in a study.
Each adapter is shown next to the best freezing that takes no more seconds, and to the best that takes no more bytes.
Differences are of the same seeds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, TypeVar

import torch
from torch import nn

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interleave
from benchmarks.lib.setup import clothing
from benchmarks.models.memory import BATCH, batch_of
from tuner.backends.base import Trial
from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.planned.bound_step import bound, held_by
from tuner.backends.torch.planned.program import program
from tuner.backends.torch.step.trace import trace
from tuner.backends.torch.step.traced import Step
from tuner.backends.torch.task_loss import CROSS_ENTROPY
from tuner.backends.torch.trial.edits.edited import edited
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, DataEdit, DataPlan, LossTerm, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import feature_bytes
from tuner.plugin.core import build_host
from tuner.process_memory import HUGE_PAGES, PeakMeter, return_freed
from tuner.processors import usable_processors
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import task_info

Name = TypeVar("Name")
ALL = "all weights"
ARMS: Mapping[str, tuple[TailEdit, ...]] = {
    ALL: (),
    "bias": (TailEdit.of("bias-only", scales=False),),
    "bias and scales": (TailEdit.of("bias-only", scales=True),),
    "lora, rank 4": (TailEdit.of("low-rank", rank=4, scale=1.0),),
    "lora, rank 4, head too": (TailEdit.of("low-rank", rank=4, scale=1.0, head="low-rank"),),
    "sparse, 1/4": (TailEdit.of("sparse", share=0.25),),
}
FREEZING, EPOCHS, DEPTHS = (1, 2, 3, 4, 6), (2, 4, 8), (6, 10)
#: The last of the blocks that hold most of what is learned; alpha of the global photos is mixed in.
FORGETTING_BLOCKS, TEACHER = 2, (LossTerm("distill", 0.25, (("temperature", 2.0),), teacher=True),)
CHOSEN = DataEdit("herding", candidates=4)
AGAINST_FORGETTING: Mapping[str, Mapping[str, Any]] = {
    "nothing": {"data": DataPlan()},
    "gdm, 1 %": {"data": DataPlan(0.01)},
    "coreset, 1 %": {"data": DataPlan(0.01, edit=CHOSEN)},
    "gdm, 5 %": {"data": DataPlan(0.05)},
    "coreset, 5 %": {"data": DataPlan(0.05, edit=CHOSEN)},
    "distill": {"data": DataPlan(), "loss": TEACHER},
    "gdm, 5 %, distill": {"data": DataPlan(0.05), "loss": TEACHER},
    "coreset, 5 %, distill": {"data": DataPlan(0.05, edit=CHOSEN), "loss": TEACHER},
}
RATES = {ALL: 1e-3, "sparse, 1/4": 1e-3}
ADAPTER_RATE = 3e-3
BLOCKS = 6
#: Of training all weights: peak, step, bytes that train.
BOUNDS: Mapping[str, tuple[float, float | None, float | None]] = {
    "bias": (0.5, 0.75, None),
    "lora, rank 4": (0.85, None, 0.15),
    "lora, rank 4, head too": (0.85, None, 0.15),
    "sparse, 1/4": (0.7, 0.8, None),
}


def accuracy(count: int, *, quick: bool) -> list[Row]:
    """Return every adapter's trials next to freezing at equal seconds and at equal bytes; means over the seeds."""
    all_epochs, depths = ((1,), (6,)) if quick else (EPOCHS, DEPTHS)
    asked = [(ALL, depth, epochs) for depth in FREEZING for epochs in all_epochs]
    asked += [(name, depth, epochs) for name in ARMS if name != ALL for depth in depths for epochs in all_epochs]
    found = _trained(lambda model, task: {one: plan_of(model, task, *one) for one in asked}, count, quick=quick)
    means = {one: _in_all(runs) for one, runs in found.items()}
    frozen = {one: values for one, values in means.items() if one[0] == ALL}
    return [_compared(one, values, frozen) for one, values in means.items()]


def forgetting(count: int, *, quick: bool) -> list[Row]:
    """Return accuracies, seconds and stored bytes of each way against forgetting; means over the seeds."""
    plans: dict[str, TrialPlan] = {}

    def asked(model: ModelInfo, task: Task) -> Mapping[str, TrialPlan]:
        plain = plan_of(model, task, ALL, FORGETTING_BLOCKS, 1 if quick else max(EPOCHS))
        plans.update({name: replace(plain, **stages) for name, stages in AGAINST_FORGETTING.items()})
        return plans

    rows: list[Row] = []
    for name, runs in _trained(asked, count, quick=quick).items():
        values = _in_all(runs)
        rows.append(
            {
                "against forgetting": name,
                "s": values["train_seconds"],
                "MB": values["peak_bytes"] / 1e6,
                "stored MB": feature_bytes(plans[name]) / 1e6,
                "local": values["local_accuracy"],
                "global": values["global_accuracy"],
                "± global": stdev(run["global_accuracy"] for run in runs) if len(runs) > 1 else 0.0,
            }
        )
    return rows


def _in_all(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means over some runs; of seconds the least, as other work on the machine adds to the others."""
    return {key: (min if key.endswith("seconds") else mean)(run[key] for run in runs) for key in runs[0]}


def _trained(
    asked: Callable[[ModelInfo, Task], Mapping[Name, TrialPlan]], count: int, *, quick: bool
) -> Mapping[Name, list[Mapping[str, float]]]:
    """Train plans on the clothing photos, each in a process of its own; return what was measured, by seed."""
    task = clothing(160, *((200, 100) if quick else (None, None)))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_remote(build_host(), task, ["torch"], many_jobs=True) as sessions,
    ):
        session, store = sessions["torch"], Store(Path(folder) / "store")
        plans = asked(session.model, task)
        session.fill(list(plans.values()), store)
        found: dict[Name, list[Mapping[str, float]]] = {one: [] for one in plans}
        for seed in range(1, count + 1):
            for one, plan in plans.items():
                started, weights = time.monotonic(), Path(folder) / "trial" / "weights"
                found[one].append(session.train(Trial(plan, seed, store, weights)).values)
                print(f"{one} seed {seed}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    return found


def plan_of(model: ModelInfo, task: Task, name: str, depth: int, epochs: int) -> TrialPlan:
    """Return the plan of an arm that trains the last blocks."""
    edits = ARMS[name] if depth > 1 else ()
    recipe = RecipePlan(epochs=epochs, batch_size=BATCH, learning_rate=RATES.get(name, ADAPTER_RATE))
    plan = TrialPlan(model, task_info(task), DataPlan(0.05), model.num_blocks - depth, edits, recipe=recipe)
    return normal_form(replace(plan, cache=CachePlan("cache", 8), runtime=RuntimePlan(threads=usable_processors())))


def _compared(one: tuple[str, int, int], values: Mapping[str, float], frozen: Mapping[Any, Mapping[str, float]]) -> Row:
    name, depth, epochs = one
    row: dict[str, object] = {
        "trial": "freezing" if name == ALL else name,
        "blocks": depth,
        "epochs": epochs,
        "s": values["train_seconds"],
        "MB": values["peak_bytes"] / 1e6,
        "local": values["local_accuracy"],
        "global": values["global_accuracy"],
    }
    for key, what in (("train_seconds", "s"), ("peak_bytes", "MB")):
        within = [other for other in frozen.values() if other[key] <= values[key]]
        best = max(within, key=lambda other: other["local_accuracy"], default=None)
        row[f"freezing at ≤ {what}"] = (
            "" if name == ALL or best is None else f"{best['local_accuracy']:.3f} / {best['global_accuracy']:.3f}"
        )
    return row


def main() -> None:
    """Measure, print, write; or run one arm."""
    parser = benchmark_parser(__doc__, "one seed, few photos, one epoch")
    parser.add_argument("--part", choices=("costs", "accuracy", "forgetting"), help="this part alone")
    parser.add_argument("--arm", choices=ARMS, help="print the peak of one arm, in this process")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the accuracies")
    asked = parser.parse_args()
    torch.set_num_threads(usable_processors())
    if asked.arm:
        print(json.dumps(peak_bytes(asked.arm)))
        return
    rows, claims = list[Row](), list[Claim]()
    seeds = 1 if asked.quick else asked.seeds
    if asked.part in {None, "costs"}:
        rows, claims = costs(rounds=10 if asked.quick else 30)
    if asked.part in {None, "accuracy"}:
        rows += accuracy(seeds, quick=asked.quick)
    if asked.part in {None, "forgetting"}:
        rows += forgetting(seeds, quick=asked.quick)
    finish("adapters", rows, claims, asked.json)


def costs(rounds: int) -> tuple[list[Row], list[Claim]]:
    """Return what each arm takes, and whether the bounds hold."""
    steps = {name: traced(name) for name in ARMS}
    seconds = interleave({name: torch_run(*pair) for name, pair in steps.items()}, rounds)
    peaks = {name: _apart(name) for name in ARMS}
    trained = {name: _trained_bytes(tail) for name, (_, tail) in steps.items()}
    rows: list[Row] = [
        {
            "arm": name,
            "trained MB": trained[name] / 1e6,
            "of all": trained[name] / trained[ALL],
            "peak MB": peaks[name] / 1e6,
            "peak of all": peaks[name] / peaks[ALL],
            "step ms": 1e3 * median(seconds[name]),
            "step of all": median(seconds[name]) / median(seconds[ALL]),
        }
        for name in ARMS
    ]
    return rows, _claims(rows)


def _trained_bytes(tail: nn.Module) -> int:
    return 4 * sum(one.numel() for one in tail.parameters() if one.requires_grad)


def _claims(rows: Sequence[Row]) -> list[Claim]:
    claims: list[Claim] = []

    def claim(text: str, found: float, limit: float, why: str = "") -> None:
        met = found <= limit
        claims.append(Claim(text, "bound of the project", f"{found:.3f}", met, "" if met else why))

    by_arm = {str(row["arm"]): {key: value for key, value in row.items() if isinstance(value, float)} for row in rows}
    for name, (peak, step, trained) in BOUNDS.items():
        row = by_arm[name]
        claim(f"{name}: peak ≤ {peak} × that of all weights", row["peak of all"], peak)
        if step is not None:
            claim(f"{name}: step ≤ {step} × that of all weights", row["step of all"], step)
        if trained is not None:
            head = (
                "the head of 210 classes, which trains whole, is 0.138 of them; the knob lora.head trains it low-rank"
            )
            claim(f"{name}: ≤ {trained} × the bytes train", row["of all"], trained, head)
    return claims


def traced(name: str) -> tuple[Step, nn.Module]:
    """Return an arm's step and tail."""
    torch.manual_seed(0)
    task = clothing(160)
    model = load(task)
    plan = TrialPlan(
        model.info,
        task_info(task),
        split=model.info.num_blocks - BLOCKS,
        shape=ARMS[name],
        recipe=RecipePlan(batch_size=BATCH),
    )
    tail = channels_last(edited(model, plan, build_host().extensions("torch")).tail)
    shape = plan.model.blocks[plan.split].in_shape
    step = trace(tail, plan.recipe, loss=CROSS_ENTROPY, input_shape=shape, outputs=plan.model.outputs, batch_size=BATCH)
    return step, tail


def torch_run(step: Step, tail: nn.Module) -> Callable[[], object]:
    """Return a step of the planned executor."""
    made, given = program(step), batch_of(step)
    run, batch = bound(made, held_by(step, tail)), [given[port] for port in made.batch]
    return lambda: float(run(*batch))


def peak_bytes(name: str) -> int:
    """Return the peak of some steps of the planned executor, over the process's rest."""
    step, tail = traced(name)
    made, given = program(step), batch_of(step)
    batch = [given[port] for port in made.batch]
    return_freed()
    meter = PeakMeter()
    run = bound(made, held_by(step, tail))
    for _ in range(6):
        run(*batch)
    return meter.peak_bytes()


def _apart(name: str) -> float:
    """Run an arm in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.models.adapters", "--arm", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | HUGE_PAGES)
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
