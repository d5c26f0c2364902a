"""A prior: built from runs, written, read, and shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.plans import PLAN
from tuner.cli.app import call
from tuner.errors import RunError
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.results.prior.file import Trains, read_prior, write_prior
from tuner.results.records.baseline import Baseline
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner_priors.portfolio import MOST_PLANS, portfolio

OLD = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [Run.open(OLD / name / "run") for name in ("digits", "signals")]


GIVEN = (Baseline("untouched", {"local_accuracy": 0.0}),)


def test_a_prior_of_recorded_runs_reads_back_as_it_was_written(runs: list[Run], tmp_path: Path) -> None:
    prior = portfolio(runs)
    assert [one.trials for one in prior.task] == [len(run.records) for run in runs]
    fronts = [run.record(trial).knobs for run in runs for trial in run.front]
    assert 2 <= len(prior.plan) <= 2 * MOST_PLANS
    assert all(plan.knobs in fronts for plan in prior.plan)
    assert all(one.near >= 0.5 for plan in prior.plan for one in plan.expected)
    write_prior(tmp_path / "prior.toml", prior)
    assert read_prior(tmp_path / "prior.toml") == prior


def test_a_prior_names_nobody_and_no_file(runs: list[Run], tmp_path: Path) -> None:
    named = [
        replace(run, info=replace(run.info, task=replace(run.info.task, name="anna"), task_name="anna")) for run in runs
    ]
    named = [replace(run, info=replace(run.info, model=replace(run.info.model, name="anna/net.py"))) for run in named]
    write_prior(tmp_path / "prior.toml", portfolio(named))
    text = (tmp_path / "prior.toml").read_text()
    assert "anna" not in text
    assert "/" not in text.replace("`", "")
    assert not {label for run in runs for label in run.info.classes.labels if len(label) > 2} & set(text.split('"'))


def recorded(trial: int, epochs: int, local: float, alpha: float = 0.5) -> TrialRecord:
    """Return a trial of so many epochs; `alpha` sets it apart from others."""
    plan = replace(PLAN, data=DataPlan(alpha), recipe=RecipePlan(epochs=epochs))
    values = {"local_accuracy": local, "global_accuracy": 0.5, "train_seconds": float(epochs)}
    return TrialRecord(trial, "done", plan, {"recipe.epochs": epochs, "gdm.alpha": alpha}, values)


def made_of(run: Run, *records: TrialRecord, front: tuple[int, ...]) -> Run:
    """Return a run of made-up trials."""
    info = replace(
        run.info,
        model=PLAN.model,
        task=PLAN.task,
        baselines=(Baseline("untouched", {"local_accuracy": 0.0}),),
        device="here",
    )
    return replace(run, info=info, records=records, front=front)


def test_luck_counts_less_than_a_good_neighbourhood(runs: list[Run]) -> None:
    lucky = [recorded(0, 10, 0.9), *(recorded(number, 10, 0.3, 0.5 + number / 1e4) for number in (1, 2, 3))]
    solid = [recorded(number, 100, 0.8, number / 1e4) for number in (4, 5, 6, 7)]
    prior = portfolio([made_of(runs[0], *lucky, *solid, front=(0, 4))])
    by_epochs = {plan.knobs["recipe.epochs"]: plan.expected[0] for plan in prior.plan}
    assert list(by_epochs) == [100]  # the lucky one is expected to bring less than it, and adds nothing to it
    assert by_epochs[100].local_accuracy == pytest.approx(0.8, abs=0.08)
    assert by_epochs[100].near == pytest.approx(4, abs=0.7)


def test_what_is_expected_on_another_task_is_what_its_trials_near_by_reached(runs: list[Run]) -> None:
    one = made_of(runs[0], recorded(0, 10, 0.9), front=(0,))
    two = made_of(runs[0], recorded(0, 10, 0.4), recorded(1, 100, 0.7, 0.0), front=(1,))
    first, second = portfolio([one, two]).plan
    reached = [(each.task, each.local_accuracy) for each in first.expected]
    assert reached == [(1, 0.9), (2, pytest.approx(0.4, abs=0.02))]
    assert [each.task for each in second.expected] == [2]  # nothing like it was tried on the first task
    last = sum(block.flops for block in PLAN.model.blocks[17:])
    assert first.trains == Trains(2 / 19, last / sum(block.flops for block in PLAN.model.blocks))


@pytest.mark.parametrize("left", [0, 1])
def test_a_task_that_is_left_out_leaves_no_trace(runs: list[Run], left: int) -> None:
    whole, others = portfolio(runs), [run for number, run in enumerate(runs) if number != left]
    prior = portfolio(others)
    kinds = [one.kind for one in whole.task]
    assert all(kind.family for kind in kinds)
    assert [one.kind for one in prior.task] == [kind for number, kind in enumerate(kinds) if number != left]
    fronts = [run.record(trial).knobs for run in others for trial in run.front]
    assert all(plan.knobs in fronts for plan in prior.plan)
    assert {one.task for plan in prior.plan for one in plan.expected} == {1}


def test_the_prior_that_ships_is_of_twenty_tasks_and_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["prior", "show", "shipped", "--json"]) == 0
    printed = capsys.readouterr().out
    assert len(json.loads(printed)["task"]) == 20
    assert not any(name in printed for name in ("/", "male", "hat", "digits", "clothing"))


def test_build_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: list[Run]) -> None:
    assert call(["prior", "build"]) == 2
    assert "needs at least one run" in capsys.readouterr().err
    out = tmp_path / "prior.toml"
    folders = [str(run.folder) for run in runs]
    assert call(["prior", "build", *folders, "--out", str(out), "--json"]) == 0
    plans = len(read_prior(out).plan)
    made = json.loads(capsys.readouterr().out)
    assert made == {"schema": "prior-build-1", "prior": str(out), "plans": plans, "tasks": 2}
    assert call(["prior", "show", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"]["samples"] for one in shown["task"]] == ["samples", "windows"]
    assert call(["prior", "show", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "trials near" in printed
    assert f"{plans}: {shown['plan'][-1]['text']}" in printed
    with pytest.raises(RunError, match="no front to take plans from"):
        portfolio([replace(runs[0], front=(), records=())])
