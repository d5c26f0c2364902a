"""A trial as text."""

from dataclasses import asdict

from tuner.metrics import percent
from tuner.plan.text import describe
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.objectives import Objective, title_of
from tuner.targets.base import TOP
from tuner.units import format_seconds


def format_trial(run: Run, record: TrialRecord) -> str:
    """Return everything that was recorded of a trial, for people; tracebacks last."""
    units = {objective.name: objective for objective in run.objectives}
    rung = f" on rung {record.rung}" if record.rung else ""
    lines = [f"trial {record.trial}: {record.state}{rung}, {format_seconds(record.spent_seconds)}"]
    lines += [describe(record.plan)] if record.plan else []
    lines += [f"the same plan as trial {record.same_as}, whose values these are"] if record.same_as is not None else []
    lines += [f"plan {record.prior} of the prior"] if record.prior is not None else []
    lines += [f"reason: {record.reason}"] if record.reason else []
    scored = record.plan.scored if record.plan else {}
    targets = run.info.targets
    named = {name: name if targets.unit == "%" else title_of(name, targets) for name in record.values}
    lines += [f"{named[name]}: {_text(units, name, value, scored)}" for name, value in record.values.items()]
    if record.estimate is not None:
        estimate = (f"{name} {value:,.4g}" for name, value in asdict(record.estimate).items())
        lines.append(f"estimate: {', '.join(estimate)}")
    lines += [f"limit {name}: over by {value:.3g}" for name, value in record.constraint.items() if value > 0]
    lines += [f"knob {name}: {value}" for name, value in record.knobs.items()]
    return "\n".join((*lines, *record.notes)).rstrip()


def _text(units: dict[str, Objective], name: str, value: float, scored: dict[str, int]) -> str:
    if TOP in name:
        return percent(value, scored[name.partition("_")[0]])
    return units[name].text(value, scored) if name in units else f"{value:,.4g}"
