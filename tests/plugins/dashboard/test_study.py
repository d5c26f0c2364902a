"""A run as a study of Optuna, for optuna-dashboard."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import Trial, TrialState

from tuner.plan.parts import Scalar
from tuner.plan.text import describe
from tuner.results.records.trial import comparable
from tuner.results.run import Run

pytest.importorskip("optuna_dashboard")
OLD = Path(__file__).parents[2] / "fixtures"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_a_run_is_a_study_with_its_names_notes_and_flat_attributes(name: str) -> None:
    from optuna_dashboard import get_note

    from tuner_dashboard.study import study_of

    folder = OLD / name / "run"
    before, run = contents(folder), Run.open(folder)
    study = study_of(run)
    assert contents(folder) == before
    assert study.study_name == f"{run.info.task_name} (run)"
    assert study.metric_names == [objective.name for objective in run.objectives]
    trials = study.get_trials()
    best = comparable(run.records)
    assert [trial.number for trial in study.best_trials] == list(run.front)
    assert {trial.number for trial in trials if trial.state is TrialState.COMPLETE} == set(best)
    varied = {
        knob for record in run.records for knob, value in record.knobs.items() if value != run.records[0].knobs[knob]
    }
    for record, trial in zip(run.records, trials, strict=True):
        assert trial.params == {knob: record.knobs[knob] for knob in varied}
        assert record.plan is not None
        assert describe(record.plan) in get_note(Trial(study, trial._trial_id))
        assert trial.user_attrs["plan.recipe.epochs"] == record.plan.recipe.epochs
        assert all(isinstance(value, str | int | float) for value in trial.user_attrs.values())
    assert varied


def test_a_knob_that_spans_decades_has_a_logarithmic_range() -> None:
    from tuner_dashboard.study import study_of

    knobs: dict[str, tuple[Scalar, Scalar]] = {
        "rate": (1e-4, 1e-2),
        "epochs": (1, 3),
        "optimiser": ("sgd", "adam"),
        "nesterov": (True, False),
    }
    run = Run.open(OLD / "digits" / "run")
    records = tuple(
        replace(record, knobs={name: pair[at % 2] for name, pair in knobs.items()})
        for at, record in enumerate(run.records)
    )
    first, *_ = study_of(replace(run, records=records)).get_trials()
    assert first.distributions == {
        "rate": optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True),
        "epochs": optuna.distributions.IntDistribution(1, 3),
        "optimiser": optuna.distributions.CategoricalDistribution(["adam", "sgd"]),
        "nesterov": optuna.distributions.CategoricalDistribution([False, True]),
    }
