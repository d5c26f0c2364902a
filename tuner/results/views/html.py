"""A run as a table of HTML, for a notebook."""

from html import escape

from tuner.plan.text import describe
from tuner.results.records.baseline import UNTOUCHED
from tuner.results.run import Run
from tuner.results.views.baselines import rows as baseline_rows
from tuner.results.views.reasons import left_out
from tuner.units import format_seconds


def as_html(run: Run) -> str:
    """Return the untouched model and the members of the front that are worth a look, with what was spent."""
    info = run.info
    states = ", ".join(f"{number} {state}" for state, number in run.counts.items() if number) or "no trial"
    title = f"{info.task_name} · space {info.space_name} · seed {info.config.seed}"
    names = "".join(f"<th>{escape(objective.title)}</th>" for objective in run.columns)
    told = {UNTOUCHED: "the given model", **{one.name: one.note for one in info.baselines if one.note}}
    rows = [_row(name, cells, told[name]) for name, cells in baseline_rows(run)]
    rows += [_member(run, trial) for trial in run.shortlist]
    left = left_out(run, run.shortlist)
    more = f" · {left.replace(', which --all shows', '')}" if left else ""
    spent = f"trials: {states} · spent {format_seconds(info.spent.seconds)} · {info.ended}{more}"
    return (
        f"<div><p><b>{escape(title)}</b></p><table><thead><tr><th>trial</th>{names}<th>plan</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
        f"<p>→ is the best; accuracies with their 95 % intervals<br>{escape(spent)}</p></div>"
    )


def _member(run: Run, trial: int) -> str:
    record = run.record(trial)
    cells = [run.text_of(objective, record.values) for objective in run.columns]
    mark = "→ " if trial == run.best else ""
    return _row(f"{mark}{trial}", cells, describe(record.plan) if record.plan else "")


def _row(name: str, cells: list[str], sentence: str) -> str:
    values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr><td>{escape(name)}</td>{values}<td style='text-align: left'>{escape(sentence)}</td></tr>"
