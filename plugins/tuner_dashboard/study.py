"""A run as a study in memory, for Optuna's pictures and optuna-dashboard: nothing is read again, nothing is written."""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.plan.parts import Scalar
from tuner.results.folder import TRIALS
from tuner.results.records.judging import comparable
from tuner.results.records.trial import SCORED, TrialRecord, varied_knobs
from tuner.results.run import Run
from tuner.results.scores.frame import columns
from tuner.results.views.answer import answer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

#: A knob is shown on a logarithmic axis where its largest value is so many times its smallest.
LOGARITHMIC = 8
#: Where optuna-dashboard reads by how much a trial breaks its limits; Optuna's own pictures read it too.
CONSTRAINTS = "constraints"
STATES = {"rejected": TrialState.PRUNED, "killed": TrialState.FAIL, "failed": TrialState.FAIL}


def dashboard_app(run: Run) -> tuple["WSGIApplication", str]:
    """Return optuna-dashboard for a run, and the path of the study's page.

    Trials of lower rungs are complete in it too, as infeasible ones: it draws no others next to a front.

    Raises:
        ModuleNotFoundError: optuna-dashboard is not installed.
    """
    from optuna_dashboard import wsgi

    study = with_notes(study_of(run, draws_rungs=True), run)
    app: WSGIApplication = wsgi(study._storage)  # noqa: SLF001 - a study has no public way to its storage
    return app, f"/dashboard/studies/{study._study_id}"  # noqa: SLF001 - nor to its number


def study_of(run: Run, *, draws_rungs: bool = False) -> optuna.Study:
    """Return a run as a study in memory.

    Trials that were scored on the samples of the front are complete, those over a limit as infeasible ones. Trials of
    lower rungs are pruned, with the values that they had there: scores of different rungs are of different samples.
    The local accuracies of the same knobs are intermediate values, whose steps count rungs from the lowest.
    Trials begin and end when they did; those of runs that did not write it down follow each other.

    Args:
        run: To show.
        draws_rungs: Whether trials of lower rungs are complete too, as infeasible ones.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [objective.optuna_direction for objective in run.objectives]
    name = f"{run.info.task_name} ({run.folder.name})"
    study = optuna.create_study(storage=InMemoryStorage(), study_name=name, directions=directions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([objective.name for objective in run.objectives])
    knobs = {name: distribution_of(values) for name, values in varied_knobs(run.records).items()}
    begun, lowest = _begun(run), max((one.rung for one in run.records), default=0)
    top = min((run.record(trial).rung for trial in comparable(run.records)), default=0)
    curves: dict[int, dict[int, float]] = {}
    for record in run.records:
        curve = curves.setdefault(record.config, {})
        if "local_accuracy" in record.values:
            curve[lowest - record.rung] = record.values["local_accuracy"]
        trial = _trial(record, knobs, run, top, draws_rungs=draws_rungs)
        for step, value in curve.items() if record.values else ():
            trial.intermediate_values[step] = value
        trial.datetime_start = begun[record.trial]
        trial.datetime_complete = begun[record.trial] + timedelta(seconds=record.spent_seconds)
        study.add_trial(trial)
    return study


def _begun(run: Run) -> Mapping[int, datetime]:
    """Return when each trial began; of runs that did not write it down, as if one followed the other until the end."""
    path = run.folder / TRIALS
    end = path.stat().st_mtime if path.exists() else 0.0
    begun = dict[int, datetime]()
    for record in reversed(run.records):
        end -= record.spent_seconds
        begun[record.trial] = datetime.fromtimestamp(record.started or end)  # noqa: DTZ006 - Optuna's are local times
    return begun


def with_notes(study: optuna.Study, run: Run) -> optuna.Study:
    """Add to a study, and to each trial, what happened in words; return it."""
    from optuna_dashboard import save_note

    save_note(study, f"{answer(run)}\n\nSpace {run.info.space_name}, seed {run.info.config.seed}; {run.info.ended}.")
    for record, trial in zip(run.records, study.get_trials(deepcopy=False), strict=True):
        note = "\n\n".join(filter(None, (columns(record)["sentence"], record.reason, *record.notes)))
        save_note(Trial(study, trial._trial_id), note)  # noqa: SLF001 - Optuna has no public way to a finished trial
    return study


def _trial(
    record: TrialRecord, knobs: Mapping[str, BaseDistribution], run: Run, top: int, *, draws_rungs: bool
) -> FrozenTrial:
    own = {name: value for name, value in record.knobs.items() if name in knobs}
    attributes = {"state": record.state, "rung": record.rung, **columns(record)}
    state, over = STATES.get(record.state, TrialState.PRUNED), max(record.constraint.values(), default=0.0)
    values = [record.values.get(one.name, math.nan) for one in run.objectives]
    if has_values := record.state in SCORED and not any(map(math.isnan, values)):
        is_low = record.rung > top
        over = max(over, float(record.rung - top))
        if record.same_as is None and (draws_rungs or not is_low):
            state = TrialState.COMPLETE
    shown = ((name, value) for name, value in attributes.items() if value not in ("", None))
    return optuna.trial.create_trial(
        state=state,
        values=values if has_values else None,
        params=own,
        distributions={name: knobs[name] for name in own},
        user_attrs={name: one if isinstance(one, str | int | float) else json.dumps(one) for name, one in shown},
        system_attrs={CONSTRAINTS: [over]} if has_values else {},
    )


def distribution_of(values: Sequence[Scalar]) -> BaseDistribution:
    """Return the range of a knob that took some values."""
    if any(isinstance(value, str | bool) for value in values):
        return CategoricalDistribution(sorted(set(values), key=str))
    numbers = [float(value) for value in values]
    low, high = min(numbers), max(numbers)
    is_log = low > 0 and high / low >= LOGARITHMIC
    if all(isinstance(value, int) for value in values):
        return IntDistribution(math.floor(low), math.ceil(high), log=is_log)
    return FloatDistribution(low, high, log=is_log)
