"""A run as text."""

from rich.console import Console
from rich.table import Table

from tuner.commands.show import counts
from tuner.plan.text import describe
from tuner.results.pick import nothing_feasible
from tuner.results.run import Run
from tuner.units import format_bytes, format_seconds


def print_run(run: Run, console: Console) -> None:
    """Print a run: the untouched model first, the Pareto front, the number of trials by state, what was spent."""
    info = run.info
    console.print(f"{info.task_name} · space {info.space_name} · seed {info.config.seed} · {info.ended}")
    console.print(_table(run))
    console.print("untouched: the given model, scored on the classes it knows", highlight=False)
    for trial in run.front:
        plan = run.record(trial).plan
        sentence = describe(plan) if plan else ""
        console.print(f"{_mark(run, trial)}{trial}: {sentence}", highlight=False, soft_wrap=True)
    if not run.front:
        console.print(f"the front is empty: {nothing_feasible(run)}")
    elif run.knee is not None:
        console.print(f"→ the knee: tuner export {run.folder} OUT --pick knee", highlight=False)
    states = ", ".join(f"{number} {state}" for state, number in counts(run).items())
    seconds, stored = format_seconds(info.spent.seconds), format_bytes(info.spent.storage_bytes)
    console.print(f"trials: {states} · spent {seconds} · the store now holds {stored}")


def _table(run: Run) -> Table:
    """Return the values of the untouched model and of the front."""
    untouched = run.info.untouched
    table = Table(box=None, pad_edge=False)
    table.add_column("trial", justify="right")
    for objective in run.objectives:
        table.add_column(objective.name.replace("_", " "), justify="right")
    cells = (
        objective.text(untouched[objective.name]) if objective.name in untouched else "–"
        for objective in run.objectives
    )
    table.add_row("untouched", *cells)
    for trial in run.front:
        values = run.record(trial).values
        cells = (objective.text(values[objective.name]) for objective in run.objectives)
        table.add_row(f"{_mark(run, trial)}{trial}", *cells)
    return table


def _mark(run: Run, trial: int) -> str:
    return "→ " if trial == run.knee else ""
