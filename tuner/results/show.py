"""A run for people and for scripts."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tuner.results.picking import nothing_feasible
from tuner.results.records import STATES
from tuner.units import said_bytes, said_seconds

if TYPE_CHECKING:
    from tuner.tune import Run


def as_json(run: "Run") -> dict[str, Any]:
    """Return everything `tuner show --json` prints."""
    info = run.info
    peaks = [record.values["peak_bytes"] for record in run.records if "peak_bytes" in record.values]
    return {
        "task": info["task_name"],
        "space": info["space_name"],
        "seed": info["config"]["seed"],
        "limits": info["config"]["limits"],
        "untouched": info["untouched"],
        "spent": {"storage_bytes": 0, **info["spent"], "peak_bytes": max(peaks, default=0)},
        "ended": info["ended"],
        "objectives": [{"name": one.name, "direction": one.direction} for one in run.objectives],
        "counts": counts(run),
        "front": [
            {
                "trial": trial,
                "values": _objective_values(run, trial),
                "plan": plan.settings(),
                "sentence": plan.say(),
                "knee": trial == run.knee,
            }
            for trial in run.front
            if (plan := run.record(trial).plan) is not None
        ],
        "trials": [_trial(run, record.trial) for record in run.records],
    }


def counts(run: "Run") -> dict[str, int]:
    """Return how many trials ended in each state; a plan suggested again counts once."""
    found = Counter(record.state for record in run.records if record.same_as is None)
    return {state: found[state] for state in STATES}


def print_run(run: "Run", console: Console) -> None:
    """Print a run: the untouched model first, the front, the counts, what was spent."""
    info = run.info
    console.print(f"{info['task_name']} · space {info['space_name']} · seed {info['config']['seed']} · {info['ended']}")
    table = Table(box=None, pad_edge=False)
    table.add_column("trial", justify="right")
    for one in run.objectives:
        table.add_column(one.name.replace("_", " "), justify="right")
    untouched = [
        one.text(info["untouched"][one.name]) if one.name in info["untouched"] else "–" for one in run.objectives
    ]
    table.add_row("untouched", *untouched)
    said = []
    for trial in run.front:
        record = run.record(trial)
        mark = "→ " if trial == run.knee else ""
        table.add_row(f"{mark}{trial}", *(one.text(record.values[one.name]) for one in run.objectives))
        said.append(f"{mark}{trial}: {record.plan.say() if record.plan else ''}")
    console.print(table)
    console.print("untouched: the given model, scored on the classes it knows", highlight=False)
    for line in said:
        console.print(line, highlight=False, soft_wrap=True)
    if not run.front:
        console.print(f"the front is empty: {nothing_feasible(run)}")
    elif run.knee is not None:
        console.print(f"→ the knee: tuner export {run.folder} OUT --pick knee", highlight=False)
    states = ", ".join(f"{number} {state}" for state, number in counts(run).items())
    spent = info["spent"]
    stored = said_bytes(spent.get("storage_bytes", 0))
    console.print(f"trials: {states} · spent {said_seconds(spent['seconds'])} · the store now holds {stored}")


def _objective_values(run: "Run", trial: int) -> dict[str, float]:
    values = run.record(trial).values
    return {one.name: values[one.name] for one in run.objectives}


def _trial(run: "Run", trial: int) -> dict[str, Any]:
    record = run.record(trial)
    content = record.to_dict()
    names = ("trial", "state", "values", "estimate", "reason", "plan", "sentence", "spent_seconds", "epochs", "same_as")
    kept = {name: content[name] for name in names}
    return {**kept, "measured": record.values, "values": record.values}
