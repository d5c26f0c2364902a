"""A run for people and for scripts."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tuner.distribution import CANDIDATES, offered
from tuner.plan.text import describe
from tuner.plan.trial import TrialPlan
from tuner.results.folder import read_exports
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.cuts import cuts_of
from tuner.results.scores.strategies import strategies_of
from tuner.results.views.answer import answer
from tuner.results.views.baselines import not_better_than
from tuner.results.views.estimates import estimate_errors
from tuner.results.views.pick import named_picks

if TYPE_CHECKING:
    from tuner.results.run import Run

#: Parts of a trial's record that are shown.
_KEYS = (
    *("trial", "state", "values", "estimate", "reason", "plan", "sentence", "spent_seconds", "epochs", "same_as"),
    *("rung", "promoted", "uncalibrated", "prior"),
)


def as_json(run: "Run") -> dict[str, Any]:
    """Return everything that ``tuner show --json`` prints."""
    info = run.info
    peaks = [record.values["peak_bytes"] for record in run.records if "peak_bytes" in record.values]
    return {
        "task": info.task_name,
        "space": info.space_name,
        "seed": info.config.seed,
        "limits": asdict(info.config.limits),
        "untouched": info.untouched.values,
        "baselines": [_baseline(one) for one in info.baselines],
        "spent": {
            "storage_bytes": info.spent.storage_bytes,
            "seconds": info.spent.seconds,
            "prefix_samples": info.spent.prefix_samples,
            "peak_bytes": max(peaks, default=0),
            "phases": info.spent.phases,
        },
        "ended": info.ended,
        "notes": info.notes,
        "kind": info.kind,
        "kinds": {name: str(kind.device) for name, kind in info.kinds.items()},
        "answer": answer(run),
        "objectives": [{"name": objective.name, "direction": objective.direction} for objective in run.objectives],
        "counts": run.counts,
        "scored_samples": run.scored_samples,
        "left_out_samples": run.left_out_samples,
        "estimate_errors": {name: asdict(errors) for name, errors in estimate_errors(run.records).items()},
        "exports": [asdict(one) for one in read_exports(run.folder)],
        "shortlist": list(run.shortlist),
        "picks": named_picks(run),
        "candidates": point.load()(run.folder) if (point := offered(CANDIDATES).get("read")) else None,
        "cuts": [asdict(cut) for cut in cuts_of(run.records)],
        "strategies": [asdict(one) for one in strategies_of(info.strategies, run.records)],
        "front": [_member(run, trial, plan) for trial in run.front if (plan := run.record(trial).plan) is not None],
        "trials": [_trial(record) for record in run.records],
    }


def trial_as_json(record: TrialRecord) -> dict[str, Any]:
    """Return everything that ``tuner show RUN N --json`` prints: what the run shows of a trial, and its notes."""
    return {**_trial(record), "notes": record.notes, "knobs": record.knobs, "constraint": record.constraint}


def _member(run: "Run", trial: int, plan: TrialPlan) -> dict[str, Any]:
    """Return a member of the front."""
    values = run.record(trial).values
    return {
        "trial": trial,
        "values": {objective.name: values[objective.name] for objective in run.objectives},
        "plan": plan.settings(),
        "sentence": describe(plan),
        "best": trial == run.best,
        "knee": trial == run.knee,
        "not_better_than": not_better_than(run, run.record(trial)),
    }


def _baseline(baseline: Baseline) -> dict[str, Any]:
    """Return what the search is compared with."""
    shown = ("name", "values", "share", "note", "seconds")
    return {name: getattr(baseline, name) for name in shown}


def _trial(record: TrialRecord) -> dict[str, Any]:
    content = record.to_dict()
    return {**{name: content[name] for name in _KEYS}, "measured": record.values}
