"""All trials of a run as text."""

from collections import Counter

from tuner.results.records.trial import TrialRecord, binding
from tuner.results.run import Run


def format_trials(run: Run) -> str:
    """Return a line for each trial, and below it why it was refused or ended early."""
    heads = ["trial", "state", "rung", *(objective.title for objective in run.objectives)]
    rows = [_row(run, record) for record in run.records]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = [_line(heads, widths)]
    for record, row in zip(run.records, rows, strict=True):
        lines.append(_line(row, widths))
        why = _why(record)
        lines += [f"    {why}"] if why else []
    limits = Counter(name for record in run.records for name, over in record.constraint.items() if over > 0)
    if limits:
        refused = ", ".join(f"{number} because of {binding(name)}" for name, number in limits.most_common())
        lines.append(f"do not count: {refused}")
    lines.append(f"trials: {', '.join(f'{number} {state}' for state, number in run.counts.items())}")
    return "\n".join(lines)


def _row(run: Run, record: TrialRecord) -> list[str]:
    mark = "→ " if record.trial == run.best else "* " if record.trial in run.front else ""
    values = [one.text(record.values[one.name]) if one.name in record.values else "–" for one in run.objectives]
    return [f"{mark}{record.trial}", record.state, str(record.rung), *values]


def _line(cells: list[str], widths: list[int]) -> str:
    return "  ".join(
        cell.ljust(width) if column == 1 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _why(record: TrialRecord) -> str:
    if record.same_as is not None:
        return f"the same plan as trial {record.same_as}, whose values these are"
    of_prior = "" if record.prior is None else f"plan {record.prior} of the prior"
    return "; ".join(filter(None, (of_prior, " ".join(record.reason.split()))))
