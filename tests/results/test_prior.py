"""A prior: built from runs, written, read, and shown; what somebody else wrote is data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plan.plans import PLAN
from tuner.cli.app import call
from tuner.errors import RunError, SpaceError
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.results.prior.file import Expected, Prior, PriorPlan, Trains, read_prior, write_prior
from tuner.results.prior.portfolio import MOST_PLANS, portfolio
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.likeness import kind_of_task, likeness

OLD = Path(__file__).parents[1] / "fixtures"
HERE = kind_of_task(PLAN.model, PLAN.task, "aarch64, 4 cores")


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [Run.open(OLD / name / "run") for name in ("digits", "signals")]


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
    info = replace(run.info, model=PLAN.model, task=PLAN.task, untouched={"local_accuracy": 0.0}, device="here")
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
    assert first.trains == Trains(2 / 19, last / HERE.flops)


def test_a_task_is_most_alike_itself_and_less_with_every_difference() -> None:
    assert likeness(HERE, HERE) == 1.0
    assert likeness(HERE, replace(HERE, device="")) == 1.0  # where it is not known
    near = likeness(HERE, replace(HERE, local=2 * HERE.local))
    far = likeness(HERE, replace(HERE, local=20 * HERE.local))
    assert 1 > near > far > likeness(HERE, replace(HERE, local=20 * HERE.local, loss="regression")) > 0
    for other in (
        replace(HERE, classes=100 * HERE.classes),
        replace(HERE, family="another"),
        replace(HERE, samples="windows"),
        replace(HERE, old=0),
        replace(HERE, device="x86_64, 2 cores"),
        replace(HERE, flops=HERE.flops // 7),
    ):
        assert likeness(HERE, other) == likeness(other, HERE) < 1


TASK = """
[[task]]
trials = 4
area = 0.5
untouched = { local_accuracy = 0.1 }
kind = { samples = "images", loss = "single-label", local = 9, old = 9, classes = 3, new_classes = 1, blocks = 3, \
flops = 9, parameters = 9 }
"""
EXPECTED = "[[plan]]\nknobs = {}\n[[plan.expected]]\ntask = 1\nnear = 2.0\non_front = 0.5\nlocal_accuracy = 0.5\n"


def test_a_prior_that_somebody_wrote_needs_knobs_only(tmp_path: Path) -> None:
    (tmp_path / "prior.toml").write_text("[[plan]]\nknobs = { 'recipe.epochs' = 3, 'cache.by' = 'cache' }\n")
    assert read_prior(tmp_path / "prior.toml") == Prior((), (PriorPlan({"recipe.epochs": 3, "cache.by": "cache"}),))
    (tmp_path / "prior.toml").write_text(TASK + EXPECTED)
    assert read_prior(tmp_path / "prior.toml").plan[0].expected == (Expected(1, 2.0, 0.5, 0.5),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("plan = 3", "plan: "),
        ("not TOML", "not valid TOML"),
        ("", r"there must be 1 to 1000 \[\[plan\]\] tables, got 0"),
        ("format = 2\n[[plan]]\nknobs = {}", "format must be 1, got 2: use the version"),
        ("[[plan]]\nepochs = 3", "plan.0.knobs"),
        ("[[plan]]\nknobs = { a = [1] }", "plan.0.knobs.a"),
        ("[[plan]]\nknobs = { a = nan }", "plan.0.knobs.a"),
        ("[[plan]]\nknobs = { a = 1979-05-27 }\ncode = 'import os'", "plan.0.code"),
        ("[[plan]]\nknobs = {}\ntrains = { depth = 2.0, flops = 0.5 }", "0.trains.depth: .* or equal to 1, got 2"),
        (TASK + EXPECTED.replace("task = 1", "task = 2"), r"plan.0.expected.0.task must be in \[1, 1\], got 2"),
        (TASK + EXPECTED.replace("= 2.0", "= -2.0"), "plan.0.expected.0.near: .* than or equal to 0, got -2"),
        (TASK + EXPECTED.replace("on_front = 0.5", "on_front = 7"), "expected.0.on_front: .* or equal to 1, got 7"),
        (TASK.replace("area = 0.5", "area = 0") + EXPECTED, "task.0.area: .* greater than 0"),
        (TASK.replace("local = 9", "local = -9") + EXPECTED, "task.0.kind must have no negative number"),
        (TASK.replace("0.1", "inf") + EXPECTED, "task.0.untouched"),
        ("[[plan]]\nknobs = {}\n" * 1001, "there must be 1 to 1000"),
    ],
)  # fmt: skip
def test_what_is_no_prior_is_refused_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "prior.toml").write_text(text)
    with pytest.raises(SpaceError, match=reason) as refused:
        read_prior(tmp_path / "prior.toml")
    assert "\n" not in str(refused.value)


def test_the_prior_that_ships_is_of_six_tasks_and_names_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["prior", "show", "shipped", "--json"]) == 0
    printed = capsys.readouterr().out
    assert len(json.loads(printed)["task"]) == 6
    assert not any(name in printed for name in ("/", "male", "hat", "digits", "clothing"))


def test_build_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: list[Run]) -> None:
    assert call(["prior", "build"]) == 2
    assert "needs at least one run" in capsys.readouterr().err
    out = tmp_path / "prior.toml"
    folders = [str(run.folder) for run in runs]
    assert call(["prior", "build", *folders, "--out", str(out), "--json"]) == 0
    plans = len(read_prior(out).plan)
    assert json.loads(capsys.readouterr().out) == {"prior": str(out), "plans": plans, "tasks": 2}
    assert call(["prior", "show", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["kind"]["samples"] for one in shown["task"]] == ["samples", "windows"]
    assert call(["prior", "show", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "trials near" in printed
    assert f"{plans}: {shown['plan'][-1]['text']}" in printed
    with pytest.raises(RunError, match="no front to take plans from"):
        portfolio([replace(runs[0], front=(), records=())])
