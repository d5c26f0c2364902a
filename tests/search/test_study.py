"""The loop: what is tried first, what is refused and taught, what ends it."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from tests.search.conftest import DIRECTIONS, Begin, Heard, Moods
from tuner.errors import BudgetError, KnobError, TunerError
from tuner.machine.awake import CLOCK
from tuner.plan.parts import Scalar
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search import stopping
from tuner.search.fill.filling import Filler
from tuner.search.propose.candidates import Candidates
from tuner.search.propose.checkpoints import Checkpoints
from tuner.search.propose.structures import DIVERGED, KEEPING, SLOWER
from tuner.search.study import Study
from tuner.search.trials.journal import open_study


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """End a study without progress after ten trials instead of fifty."""
    assert stopping.REFUSALS_IN_A_ROW == 50
    monkeypatch.setattr(stopping, "REFUSALS_IN_A_ROW", 10)


def trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials in a run's journal."""
    return open_study(folder / "journal.log", DIRECTIONS).trials


def constraints(folder: Path) -> list[dict[str, float]]:
    return [dict(trial.constraints) for trial in trials(folder) if trial.state.is_finished()]


def plans(study: Study) -> list[tuple[int, str]]:
    return [(one.plan.trainable, one.plan.cache.by) for one in study.records if one.plan is not None]


def test_each_anchors_structure_is_tried_once_from_the_cheap_end_and_it_ends_after_the_trials_asked_for(
    begin: Begin, heard: Any, stand_in: Any, tmp_path: Path
) -> None:
    study = begin(Budget(trials=6))
    assert trials(tmp_path) == [], "the next one is chosen after each trial"
    study.run()
    assert plans(study)[:3] == [(1, "cache"), (2, "cache"), (4, "none")]
    cheap, deeper, whole = (record.knobs for record in study.records[:3])
    assert cheap["recipe.epochs"] == 20, "64 steps would be more than the space has"
    assert cheap["gdm.alpha"] == 0.09, "a half more than the 12 local samples, of 200"
    assert cheap["recipe.learning_rate"] == pytest.approx(KEEPING), "the model knows classes already"
    rates = [float(knobs["recipe.learning_rate"]) for knobs in (cheap, deeper, whole)]
    assert rates == sorted(rates, reverse=True)
    tried = [record.plan.key() for record in study.records if record.plan is not None]
    assert not set(tried[3:]) & set(tried[:3])
    assert study.ended == "6 trials are done"
    assert [record.state for record in study.records] == ["done"] * 6
    assert len(stand_in.trained()) == 6
    assert heard.records == study.records
    kept = {int(path.parent.name) for path in (tmp_path / "trials").glob("*/weights.safetensors")}
    assert kept == set(study.front())


@pytest.mark.parametrize(("step_seconds", "anchors"), [(0.1, 3), (5.0, 1)])
def test_an_anchor_after_the_first_takes_at_most_a_tenth_of_the_time_where_they_are_tried_in_order(
    begin: Begin, tmp_path: Path, step_seconds: float, anchors: int
) -> None:
    begin(Budget(time_seconds=100.0), deterministic=False, step_seconds=step_seconds, sampler="random")
    assert len(trials(tmp_path)) == anchors


def test_no_plan_is_trained_twice(begin: Begin, stand_in: Any) -> None:
    few = {
        "recipe.epochs": (2, 3),
        "recipe.batch_size": 8,
        "recipe.learning_rate": 1e-3,
        "recipe.optimiser": "sgd",
        "recipe.schedule": "cosine",
        "recipe.weight_decay": 0.0,
        "recipe.patience": 0,
        "recipe.freeze_bn": True,
        "recipe.micro_batches": 1,
        "recipe.label_smoothing": 0.0,
        "recipe.solve_again": False,
        "freeze.trainable_blocks": (1, 2, 3, 4),
    }
    study = begin(Budget(trials=100), strategies=("freeze",), wanted=few)
    study.run()
    assert study.ended == "10 plans in a row were tried before: the search space has nothing new"
    trained = stand_in.trained()
    assert len(trained) == len(set(trained)) == 8  # four depths, two numbers of epochs
    again = [record for record in study.records if record.same_as is not None]
    assert again
    for record in again:
        assert record.same_as is not None
        assert record.values == study.records[record.same_as].values
    assert not {record.trial for record in again} & set(study.front())


def test_refusals_reach_optuna_as_log_of_value_over_limit(begin: Begin, tmp_path: Path, stand_in: Any) -> None:
    study = begin(Budget(trials=100, memory_bytes=1_000_000))
    study.run()
    assert study.ended == "10 plans in a row were refused, most of them for --memory"
    assert stand_in.trained() == []
    assert len(study.records) == 10
    for record, broken in zip(study.records, constraints(tmp_path), strict=True):
        assert record.state == "rejected"
        assert record.estimate is not None
        assert (
            broken == record.constraint == {"memory": pytest.approx(math.log(record.estimate.peak_bytes / 1_000_000))}
        )
        assert record.reason.startswith("--memory: needs ")


def test_a_line_whose_longer_training_would_be_over_a_limit_is_left_for_another(begin: Begin) -> None:
    study = begin(Budget(trials=20, train_seconds=0.3))
    study.run()
    assert study.ended == "20 trials are done"
    refused = [record.plan.key() for record in study.records if record.state == "rejected" and record.plan is not None]
    assert len(refused) == len(set(refused)) > 0


def test_a_trial_that_turns_out_over_a_limit_is_kept_off_the_front(begin: Begin, moods: Moods, tmp_path: Path) -> None:
    moods("well", "big", "well")
    study = begin(Budget(trials=3, memory_bytes=500_000_000), deterministic=False)
    study.run()
    assert [record.state for record in study.records if record.state != "rejected"] == ["done"] * 3
    assert constraints(tmp_path)[1]["memory"] == pytest.approx(math.log(2))
    assert constraints(tmp_path)[0]["memory"] < 0
    assert 1 not in study.front()


def test_what_a_backend_lacks_for_one_tail_is_refused_unrun_for_every_tail_that_holds_it(
    begin: Begin, moods: Moods, tmp_path: Path, stand_in: Any
) -> None:
    moods("well", "lacking", "well")
    study = begin(Budget(trials=5))
    study.run()
    assert [record.state for record in study.records[:2]] == ["done", "rejected"]
    assert study.records[1].reason == "an operator has no form here"
    assert constraints(tmp_path)[1] == {"support": 1.0}
    lacking = [one for one in study.records[2:] if one.plan and one.plan.recipe.freeze_bn and one.plan.trainable >= 3]
    assert lacking
    assert {(one.state, one.reason) for one in lacking} == {("rejected", "an operator has no form here")}
    ran = [one for one in study.records if one.state == "done"]
    assert len(ran) == 5
    assert len(stand_in.trained()) == 6


def test_a_trial_that_raises_is_failed_and_keeps_its_traceback(begin: Begin, moods: Moods, tmp_path: Path) -> None:
    moods("raise", "diverge", "nan", "well")
    study = begin(Budget(trials=4), deterministic=False)
    study.run()
    raised, diverged, strange, well = study.records
    assert [record.state for record in study.records] == ["failed", "failed", "failed", "done"]
    assert raised.reason == "ValueError: this is no tensor"
    assert "in train" in raised.notes[0]
    assert diverged.reason.startswith("diverged: the loss became nan in epoch 1: lower")
    assert diverged.notes == ()
    assert strange.reason == "it gave no finite value of train_seconds"
    assert [broken.get("failed") for broken in constraints(tmp_path)] == [1.0, None, 1.0, None]
    assert constraints(tmp_path)[1] == {DIVERGED: 1.0}
    assert study.front() == [well.trial]


def test_a_training_that_diverged_is_tried_again_at_a_third_of_its_rate(begin: Begin, moods: Moods) -> None:
    moods("well", "diverge", "well")
    study = begin(Budget(trials=4))
    study.run()
    _, diverged, slower, next_ = study.records
    assert (diverged.state, diverged.constraint) == ("failed", {DIVERGED: 1.0})
    assert slower.state == "done"
    assert slower.knobs["recipe.learning_rate"] == pytest.approx(SLOWER * float(diverged.knobs["recipe.learning_rate"]))
    rest = [{**one.knobs, "recipe.learning_rate": 0.0} for one in (diverged, slower)]
    assert rest[0] == rest[1]
    assert plans(study)[1:] == [(2, "cache"), (2, "cache"), (4, "none")], "then the ladder goes on"
    assert next_.state == "done"


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_study_with_a_time_limit_ends_where_nothing_is_left_to_gain_unless_it_is_to_keep_going(
    begin: Begin, moods: Moods, heard: Heard, keep_going: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_record: TrialRecord) -> None:
        if len(study.records) == 4:  # the time is up
            monkeypatch.setattr(CLOCK, "stopped", CLOCK.stopped - 3600.0)

    monkeypatch.setattr(heard, "trial", late)
    moods("well", "right")
    study = begin(Budget(time_seconds=3600.0, keep_going=keep_going), deterministic=False)
    study.run()
    assert len(study.records) == (4 if keep_going else 2), "it ends with the first trial that has all samples right"
    own = "nothing is left to gain that the validation samples could show (--keep-going "
    assert study.ended.startswith(own) is not keep_going
    assert study.ended.startswith("the time is up") is keep_going


def test_a_strategy_that_raises_three_times_is_removed_from_the_study(begin: Begin, heard: Any) -> None:
    study = begin(Budget(trials=5), strategies=("gdm", "freeze", "cache", "raises"))
    study.run()
    failed, well = study.records[:3], study.records[3:]
    assert [record.state for record in failed] == ["failed"] * 3
    (reason,) = {record.reason for record in failed}
    assert re.fullmatch(r"strategy 'raises': apply raised KeyError: 'a plan' \(misbehaving\.py, line \d+\)", reason)
    assert all("in apply" in record.notes[0] for record in failed)
    assert [record.state for record in well] == ["done"] * 2
    assert [line for line in heard.lines if "strategy 'raises' failed 3 times and takes no further part" in line]


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2"])
def test_a_strategy_that_is_removed_leaves_the_knobs_that_draw_it_as_they_were(
    begin: Begin, heard: Any, sampler: str
) -> None:
    strategies = ("gdm", "freeze", "bias", "cuts", "cache")
    wanted: dict[str, Scalar] = {"bias.scales": False, "gdm.weight": 1.0, "gdm.balance": False}
    wanted["recipe.schedule"] = "cosine"  # no training is continued: all trials are drawn
    study = begin(Budget(trials=30), strategies=strategies, sampler=sampler, wanted=wanted)
    study.run()
    failed = [record.trial for record in study.records if record.state == "failed"]
    assert len(failed) >= 3
    assert any(record.state == "done" for record in study.records[failed[2] :])
    assert [line for line in heard.lines if "strategy 'cuts' failed 3 times and takes no further part" in line]


def test_a_sample_that_cannot_be_read_stops_the_study_or_fails_the_trials_that_need_it(
    begin: Begin, moods: Moods, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods("bad-sample")
    with pytest.raises(TunerError, match=r"^hat\.jpg: not an image"):
        begin()
    with monkeypatch.context() as patch:
        patch.setattr(Filler, "prepare", lambda *_: True)  # it turns up later
        study = begin(Budget(trials=2))
    study.run()
    assert [record.state for record in study.records] == ["failed", "failed"]
    assert "hat.jpg" in study.records[0].reason


def test_a_time_that_is_too_short_for_the_features_of_one_trial_is_reported_at_once(
    begin: Begin, stand_in: Any
) -> None:
    stand_in.lacking = 1_000_000
    with pytest.raises(BudgetError, match=r"--time is too small for one trial: .* give at least "):
        begin(Budget(time_seconds=0.02), deterministic=False)
    with pytest.raises(
        BudgetError, match=r"one trial: 0\.0 s are left, but computing the features of 1,000,000 samples"
    ):
        begin(Budget(time_seconds=-0.1), deterministic=False)


def test_a_value_outside_every_legal_range_is_the_users_mistake(begin: Begin) -> None:
    with pytest.raises(KnobError, match="learning_rate: the search space asks for 5"):
        begin(wanted={"recipe.learning_rate": 5.0})


def test_a_refused_plan_may_run_after_a_resume_with_more(begin: Begin, stand_in: Any, tmp_path: Path) -> None:
    begin(Budget(trials=1, memory_bytes=1_000_000)).run()
    study = begin(Budget(trials=3))
    refused = {record.plan.key() for record in study.records if record.plan is not None}
    assert len(study.records) == len(refused) == 10
    open_study(tmp_path / "journal.log", DIRECTIONS).enqueue_trial(dict(trials(tmp_path)[0].params))
    study.run()
    assert refused & set(stand_in.trained())


def test_siblings_that_a_kill_left_out_are_put_in_the_queue(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(Budget(trials=2)).run()
    waiting = list[tuple[Any, int]]()
    monkeypatch.setattr(Checkpoints, "has_siblings", lambda *_: True)
    monkeypatch.setattr(Candidates, "enqueue_siblings", lambda _, composed, rung: waiting.append((composed, rung)))
    last = begin(Budget(trials=2)).records[-1]
    assert [(composed.values, rung) for composed, rung in waiting] == [(last.knobs, last.rung)]


def test_resuming_continues_the_count(begin: Begin, stand_in: Any) -> None:
    begin(Budget(trials=3)).run()
    study = begin(Budget(trials=5))
    study.run()
    trained = stand_in.trained()
    assert len(trained) == len(set(trained)) == 5
    assert [record.trial for record in study.records] == [0, 1, 2, 3, 4]
