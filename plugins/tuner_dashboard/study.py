"""A run as a study in memory, for Optuna's pictures and optuna-dashboard: nothing is read again, nothing is written."""

import json
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.plan.parts import Scalar
from tuner.results.records.trial import TrialRecord, comparable, varied_knobs
from tuner.results.run import Run
from tuner.results.scores.frame import columns
from tuner.results.views.answer import answer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

#: A knob is shown on a logarithmic axis where its largest value is so many times its smallest.
LOGARITHMIC = 8
STATES = {"rejected": TrialState.PRUNED, "killed": TrialState.FAIL, "failed": TrialState.FAIL}


def dashboard_app(run: Run) -> "WSGIApplication":
    """Return optuna-dashboard for a run; ModuleNotFoundError where it is not installed."""
    from optuna_dashboard import wsgi

    app: WSGIApplication = wsgi(with_notes(study_of(run), run)._storage)  # noqa: SLF001 - a study has no public way to its storage
    return app


def study_of(run: Run) -> optuna.Study:
    """Return a run as a study in memory.

    Trials that may be on the front are complete. The others that were scored are pruned, with their values as user
    attributes: scores of different rungs are of different samples, and a trial over a limit is no answer. The local
    accuracy of each is an intermediate value, whose step is the rung, counted from the lowest.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = [objective.optuna_direction for objective in run.objectives]
    name = f"{run.info.task_name} ({run.folder.name})"
    study = optuna.create_study(storage=InMemoryStorage(), study_name=name, directions=directions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names([objective.name for objective in run.objectives])
    knobs = {name: distribution_of(values) for name, values in varied_knobs(run.records).items()}
    best = comparable(run.records)
    for record in run.records:
        study.add_trial(_trial(record, knobs, run, is_comparable=record.trial in best))
    return study


def with_notes(study: optuna.Study, run: Run) -> optuna.Study:
    """Add to a study, and to each trial, what happened in words; return it."""
    from optuna_dashboard import save_note

    save_note(study, f"{answer(run)}\n\nSpace {run.info.space_name}, seed {run.info.config.seed}; {run.info.ended}.")
    for record, trial in zip(run.records, study.get_trials(deepcopy=False), strict=True):
        note = "\n\n".join(filter(None, (columns(record)["sentence"], record.reason, *record.notes)))
        save_note(Trial(study, trial._trial_id), note)  # noqa: SLF001 - Optuna has no public way to a finished trial
    return study


def _trial(record: TrialRecord, knobs: dict[str, BaseDistribution], run: Run, *, is_comparable: bool) -> FrozenTrial:
    own = {name: value for name, value in record.knobs.items() if name in knobs}
    attributes = {"state": record.state, "rung": record.rung, **columns(record)}
    state, values = STATES.get(record.state, TrialState.PRUNED), None
    if is_comparable:
        names = [objective.name for objective in run.objectives]
        state, values = TrialState.COMPLETE, [record.values[name] for name in names]
        attributes = {name: value for name, value in attributes.items() if name not in names}
    accuracy, lowest = record.values.get("local_accuracy"), max((one.rung for one in run.records), default=0)
    shown = ((name, value) for name, value in attributes.items() if value not in ("", None))
    return optuna.trial.create_trial(
        state=state,
        values=values,
        params=own,
        distributions={name: knobs[name] for name in own},
        intermediate_values={} if accuracy is None else {lowest - record.rung: accuracy},
        user_attrs={name: one if isinstance(one, str | int | float) else json.dumps(one) for name, one in shown},
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
