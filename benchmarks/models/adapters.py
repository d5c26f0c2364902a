"""Adapters (bias-only, low-rank, sparse) against training all weights, and what mixed-in samples and a teacher bring.

Trials on the clothing photos, 8-bit features, each in a process of its own, as in a study. Each adapter is shown next
to the best freezing that takes no more seconds, and to the best that takes no more bytes.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeVar

from benchmarks.lib.report import Row, benchmark_parser, finish
from benchmarks.lib.setup import clothing
from benchmarks.models.memory import BATCH
from tuner.backends.base import Trial
from tuner.machine.control_group import usable_processors
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, DataEdit, DataPlan, LossTerm, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form
from tuner.planner.data_terms import feature_bytes
from tuner.plugin.core import build_host
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
                "against forgetting": name, "s": values["train_seconds"], "MB": values["peak_bytes"] / 1e6,
                "stored MB": feature_bytes(plans[name]) / 1e6, "local": values["local_accuracy"],
                "global": values["global_accuracy"],
                "± global": stdev(run["global_accuracy"] for run in runs) if len(runs) > 1 else 0.0,
            }
        )  # fmt: skip
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
        "trial": "freezing" if name == ALL else name, "blocks": depth, "epochs": epochs,
        "s": values["train_seconds"], "MB": values["peak_bytes"] / 1e6, "local": values["local_accuracy"],
        "global": values["global_accuracy"],
    }  # fmt: skip
    for key, what in (("train_seconds", "s"), ("peak_bytes", "MB")):
        within = [other for other in frozen.values() if other[key] <= values[key]]
        best = max(within, key=lambda other: other["local_accuracy"], default=None)
        row[f"freezing at ≤ {what}"] = (
            "" if name == ALL or best is None else f"{best['local_accuracy']:.3f} / {best['global_accuracy']:.3f}"
        )
    return row


def main() -> None:
    """Measure, print, write."""
    parser = benchmark_parser(__doc__, "one seed, few photos, one epoch")
    parser.add_argument("--part", choices=("accuracy", "forgetting"), help="this part alone")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the accuracies")
    asked = parser.parse_args()
    rows, seeds = list[Row](), 1 if asked.quick else asked.seeds
    if asked.part in {None, "accuracy"}:
        rows += accuracy(seeds, quick=asked.quick)
    if asked.part in {None, "forgetting"}:
        rows += forgetting(seeds, quick=asked.quick)
    finish("adapters", rows, [], asked.json)


if __name__ == "__main__":
    main()
