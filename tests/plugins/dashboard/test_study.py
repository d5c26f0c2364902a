"""A run as a study of Optuna, for optuna-dashboard."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import Trial, TrialState

import tuner
from tuner.plan.parts import Scalar
from tuner.plan.text import describe
from tuner.results.records.judging import comparable
from tuner.results.run import Run

pytest.importorskip("optuna_dashboard")
OLD = Path(__file__).parents[2] / "fixtures"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "exits", "signals"])
def test_a_run_is_a_study_with_its_names_notes_and_flat_attributes(name: str) -> None:
    from optuna_dashboard import get_note

    from tuner_dashboard.study import study_of, with_notes

    folder = OLD / name / "run"
    before, run = contents(folder), Run.open(folder)
    study = with_notes(study_of(run), run)
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


def of_two_rungs() -> Run:
    """A run whose trial 3 repeats trial 1 on all samples, and whose trial 0 is over a limit."""
    run = Run.open(OLD / "digits" / "run")
    changes = {0: {"constraint": {"memory": 0.2}}, 1: {"rung": 2}, 2: {"started": 1e9}, 3: {"promoted": 1}}
    records = tuple(replace(one, **changes[one.trial]) for one in run.records)  # type: ignore[arg-type]  # by name
    return replace(run, records=records, front=(2, 3), best=3)


def test_lower_rungs_limits_and_times_are_where_optuna_has_them() -> None:
    from tuner_dashboard.study import study_of

    run = of_two_rungs()
    records, study = run.records, study_of(run)
    over, low, plain, promoted = study.get_trials()
    complete, pruned = TrialState.COMPLETE, TrialState.PRUNED
    assert [one.state for one in (over, low, plain, promoted)] == [complete, pruned, complete, complete]
    assert 0 not in {one.number for one in study.best_trials}
    assert [one.trial for one in run.best_trials] == [2, 3]
    assert list(over.constraints.values()) == [0.2]
    assert low.values == [records[1].values[one.name] for one in run.objectives]
    accuracies = [one.values["local_accuracy"] for one in records]
    assert low.intermediate_values == {0: accuracies[1]}
    assert promoted.intermediate_values == {0: accuracies[1], 2: accuracies[3]}
    assert plain.datetime_start is not None
    assert plain.datetime_start.timestamp() == 1e9
    for record, trial in zip(records, study.get_trials(), strict=True):
        assert trial.duration is not None
        assert trial.duration.total_seconds() == pytest.approx(record.spent_seconds, abs=1e-5)
    shown = study_of(run, draws_rungs=True)
    assert [one.state for one in shown.get_trials()] == [complete] * 4
    assert {one.number for one in shown.best_trials} == {one.number for one in study.best_trials}


@pytest.mark.filterwarnings("ignore")  # of Optuna and matplotlib, on pictures of few trials
def test_optunas_pictures_of_several_objectives_are_drawn_of_a_runs_study() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from optuna.visualization import matplotlib as pictures

    from tuner_dashboard.study import study_of

    of_one = {"target": lambda trial: trial.values[0], "target_name": "local accuracy"}
    for study in (tuner.Run.open(OLD / "digits" / "run").study(), study_of(of_two_rungs(), draws_rungs=True)):
        for name in ("contour", "edf", "optimization_history", "parallel_coordinate", "rank", "slice"):
            getattr(pictures, f"plot_{name}")(study, **of_one)
        pictures.plot_pareto_front(study, targets=lambda trial: trial.values[:2], target_names=["local", "global"])
        pictures.plot_hypervolume_history(study, reference_point=[0.0, 0.0, 1e6])
        for name in ("intermediate_values", "parallel_coordinate", "timeline"):
            getattr(pictures, f"plot_{name}")(study)
        pictures.plot_param_importances(study)
        matplotlib.pyplot.close("all")


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
