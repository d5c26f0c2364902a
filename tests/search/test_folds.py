"""Folds in a study: a trial is several trainings, its local accuracy is of all samples that they were scored on."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.conftest import Begin, Heard, InProcess, MakeSetting
from tuner.backends.base import Trial
from tuner.errors import UsageError
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import DataPlan
from tuner.plan.trial import TrialPlan
from tuner.results.records.config import Budget
from tuner.results.records.counts import ClassCounts
from tuner.results.records.trial import Outcome
from tuner.search.estimate.forecast import Forecast
from tuner.search.folds import check_folds, check_possible_folds, joined, train, with_folds
from tuner.search.processes.guard import JobResult
from tuner.search.setting import Setting
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.info import outline


def trainings(stand_in: InProcess) -> list[Trial]:
    return [job.arguments["trial"] for job in stand_in.jobs if job.method == "train"]


def test_a_trial_trains_once_on_all_and_once_without_each_fold(
    begin: Begin, make_setting: MakeSetting, stand_in: InProcess, heard: Heard, tmp_path: Path
) -> None:
    study = begin(Budget(trials=2), folds=3)
    study.run()
    first = study.records[0].plan
    assert first is not None
    once, folded = (Forecast(make_setting(), {}).spend_seconds(with_folds(first, n), 0, []) for n in (0, 3))
    assert 2.5 * once < folded < 4.2 * once
    trials = trainings(stand_in)
    assert [one.plan.data.fold for one in trials] == [0, 1, 2, 3] * 2
    assert [one.plan.data.folds for one in trials] == [0, 3, 3, 3] * 2
    assert len({one.seed for one in trials}) == 8
    assert {file.name for file in tmp_path.glob("trials/*/*")} <= {"weights.safetensors"}
    assert all(bool(one.objectives) == (one.plan.data.fold == 0) for one in trials)
    for record, own in zip(heard.records, (trials[:4], trials[4:]), strict=True):
        assert record.plan is not None
        assert record.state == "done"
        assert record.plan.data.folds == 3
        assert record.plan.scored == {"local": 16, "global": 8}
        scores = [1 - 1 / (one.plan.train_samples + one.plan.trainable + one.plan.recipe.epochs) for one in own]
        mean = sum(count * score for count, score in zip((4, 4, 4, 4), scores, strict=True)) / 16
        assert record.values["local_accuracy"] == pytest.approx(mean)
        assert record.values["global_accuracy"] == 1 - scores[0] / 2
        whole, *folds = (f"{100 * score:.1f} %" for score in scores)
        assert record.notes[-1].endswith(f", on local.val: {whole}; by fold of local.train: {', '.join(folds)}")


def test_a_resumed_study_reads_its_folds_and_repeats_no_trial(begin: Begin, stand_in: InProcess) -> None:
    first = begin(Budget(trials=2), folds=2)
    first.run()
    before = len(trainings(stand_in))
    again = begin(Budget(trials=3), folds=2)
    assert again.records == first.records
    again.run()
    assert len(trainings(stand_in)) == before + 3


def test_only_plans_of_the_top_rung_have_folds(begin: Begin, stand_in: InProcess, ladder_of_three: None) -> None:
    begin(Budget(trials=14), folds=2).run()
    folds = {(one.plan.data.share, one.plan.data.folds) for one in trainings(stand_in)}
    assert {share for share, number in folds if number} == {1.0}
    assert {number for share, number in folds if share < 1} == {0}


@pytest.mark.parametrize("ending", ["failure", "memory", "stopped"])
def test_a_training_without_a_result_ends_the_trial(
    setting: Setting, store: Store, plan: TrialPlan, stand_in: InProcess, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    session = stand_in.session()
    real, calls = session.try_train, []

    def try_train(trial: Trial, limits: object, progress: object = None) -> JobResult[Outcome]:
        calls.append(trial)
        done = real(trial, limits, progress)  # type: ignore[arg-type]
        if len(calls) < 3:
            return done
        if ending == "stopped":
            assert done.value is not None
            return replace(done, value=replace(done.value, stopped="stopped on request after epoch 1"))
        return JobResult("memory" if ending == "memory" else "crashed", most_bytes=10**9)

    monkeypatch.setattr(session, "try_train", try_train)
    end = time.monotonic() if ending == "stopped" else None
    weights = setting.folder / "w.safetensors"
    trial = Trial(with_folds(plan, 3), 0, store, weights)
    result = train(replace(setting, end=end), session, trial, lambda _: None)
    assert result.verdict == {"failure": "crashed", "memory": "memory", "stopped": "deadline"}[ending]
    assert result.value is None
    assert not weights.with_name("fold.safetensors").exists()


def test_classes_add_up_over_the_folds() -> None:
    one = ClassCounts(((0, 2, 3), (1, 1, 1)), ((0, 1, 1),))
    other = ClassCounts(((0, 1, 4), (2, 0, 1)), ((0, 2, 2), (0, 1, 1), (2, 0, 1)))
    assert ClassCounts.joined([one, other]) == ClassCounts(
        ((0, 3, 7), (1, 1, 1), (2, 0, 1)), ((0, 1, 2), (0, 2, 2), (2, 0, 1))
    )


@pytest.mark.parametrize("folds", [1, 0, -3])
def test_fewer_than_two_folds_are_refused_in_one_line(folds: int) -> None:
    with pytest.raises(UsageError, match=f"--folds must be a whole number from 2, got {folds}: leave it out") as caught:
        check_folds(folds)
    assert "\n" not in str(caught.value)
    assert check_folds(None) == 0
    assert check_folds(2) == 2


def test_more_folds_than_the_smallest_class_has_samples_are_refused(task: Task) -> None:
    told = outline(task)
    assert (told.most_folds, told.smallest_class) == (12, "c")
    check_possible_folds(12, told)
    check_possible_folds(0, replace(told, most_folds=0))
    rule = "--folds must be at most 12, as many as local.train has samples of class 'c', got 13: give fewer folds"
    with pytest.raises(UsageError, match=rule):
        check_possible_folds(13, told)
    with pytest.raises(UsageError, match="two recordings of each class or more"):
        check_possible_folds(2, replace(told, most_folds=0))


def test_errors_of_folds_are_joined_by_their_numbers_of_samples() -> None:
    task = replace(example_task(), local_train=30, local_val=20, loss="regression")
    plan = TrialPlan(example_model(4), task, data=DataPlan(folds=2))
    values = [{"local_accuracy": 0.9, "local_mae": 2.0, "global_mae": 9.0, "flops": 5.0}]
    values[0] |= {
        "cost": 1.0,
        "cost_se": 0.5,
        "local_loo_accuracy": 0.95,
        "local_loo_mae": 1.0,
    }  # of a solved head: folds score it on all samples
    values += [{"local_accuracy": 0.8, "local_mae": 3.0}, {"local_accuracy": 0.7, "local_mae": 5.0}]
    values[1]["cost"], values[2]["cost"] = 2.0, 4.0
    for one, peak in zip(values, (1e6, 3e6, 2e6), strict=True):
        one["peak_bytes"] = peak
    found = joined(plan, [Outcome(each) for each in values], ["cost"])
    counts = [one.local_scored for one in plan.trainings]
    assert counts == [20, 15, 15]
    assert found.values["local_mae"] == pytest.approx((20 * 2 + 15 * 3 + 15 * 5) / 50)
    losses = [{**one, "local_loss": loss} for one, loss in zip(values, (1.0, 2.0, 3.0), strict=True)]
    with_losses = joined(plan, [Outcome(each) for each in losses], ["cost"])
    assert with_losses.values["local_loss"] == pytest.approx((20 * 1 + 15 * 2 + 15 * 3) / 50)
    lacking = joined(plan, [Outcome(each) for each in (losses[0], *values[1:])], ["cost"])
    assert "local_loss" not in lacking.values, "the first training's is of other samples"
    assert found.values["cost"] == pytest.approx((20 * 1 + 15 * 2 + 15 * 4) / 50)
    assert "cost_se" not in found.values
    del values[2]["cost"]
    raised = [Outcome(each, notes=(f"note {at}",)) for at, each in enumerate(values)]
    assert joined(plan, raised, ["cost"]).notes[2:] == ("fold 2: note 2",)
    assert found.values["local_accuracy"] == pytest.approx((20 * 0.9 + 15 * 0.8 + 15 * 0.7) / 50)
    assert (found.values["global_mae"], found.values["flops"]) == (9.0, 5.0)
    assert found.values["peak_bytes"] == 3e6, "what was trained on all samples before takes nothing again"
    assert not [name for name in found.values if "loo" in name]
    assert found.notes == (
        "local R² of the weights that are kept, on local.val: 0.900; by fold of local.train: 0.800, 0.700",
    )
