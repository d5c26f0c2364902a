"""A prior as text."""

from rich.console import Console
from rich.table import Table

from tuner.metrics import percent
from tuner.plan.parts import Scalar
from tuner.results.prior.file import Prior, PriorPlan


def print_prior(prior: Prior, console: Console) -> None:
    """Print the tasks of a prior as a table, and each plan with what it is expected to bring on them."""
    if prior.task:
        console.print(_tasks(prior))
    for number, plan in enumerate(prior.plan, 1):
        console.print(f"{number}: {plan.text or _knobs(plan)}", highlight=False)
        if plan.expected:
            console.print(_expected(plan))


def _tasks(prior: Prior) -> Table:
    table = _table("task", "samples", "local", "global", "classes", "blocks", "MFLOP", "device", "trials")
    for number, one in enumerate(prior.task, 1):
        kind = one.kind
        classes = f"{kind.classes:,}, {kind.new_classes:,} new" if kind.new_classes else f"{kind.classes:,}"
        sizes = (f"{kind.local:,}", f"{kind.old:,}", classes, f"{kind.blocks:,}", f"{kind.flops / 1e6:,.3g}")
        table.add_row(str(number), kind.samples, *sizes, kind.device or "–", str(one.trials))
    return table


def _expected(plan: PriorPlan) -> Table:
    table = _table("  on task", "local", "global", "relative time", "trials near", "on the front")
    for one in plan.expected:
        accuracies = (percent(one.local_accuracy), percent(one.global_accuracy))
        table.add_row(
            str(one.task), *accuracies, f"{one.relative_seconds:.2g}", f"{one.near:.3g}", f"{100 * one.on_front:.0f} %"
        )
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _knobs(plan: PriorPlan) -> str:
    return ", ".join(f"{name} = {_shown(value)}" for name, value in plan.knobs.items())


def _shown(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
