"""Workers of one study: no plan is trained twice, no trial is lost, costs are each kind's own."""

import copy
import json
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tests.plugins.fleet.conftest import BOARD, PHONE, Worker
from tuner.errors import RunError
from tuner.plugin.compose import Composed
from tuner.results.folder import TRIALS
from tuner.results.records.config import Budget
from tuner_fleet.storage.trials import Trials
from tuner_fleet.study.claims import RETRIES, is_void
from tuner_fleet.study.content import RECORD, RUN

Join = Callable[..., Any]


def running(worker: Any) -> list[Any]:
    return [trial for trial in worker.queue.study.get_trials() if trial.state is TrialState.RUNNING]


def test_two_workers_share_the_trials_and_train_no_plan_twice(join: Join, stand_in: Any) -> None:
    one, other = join("one"), join("other")
    assert one.states() == [TrialState.WAITING] * 3  # the first plans are in the queue once
    for _ in range(3):
        one.step()
        other.step()
    one.hear()
    assert one.reason_to_end() == other.reason_to_end() == "6 trials are done"
    trained = stand_in.trained()
    assert len(trained) == len(set(trained)) == 6
    assert [record.trial for record in one.study.records] == [record.trial for record in other.study.records]
    lines = [(worker.folder / TRIALS).read_text() for worker in (one, other)]
    assert len(lines[0].splitlines()) == 6
    assert sorted(lines[0].splitlines()) == sorted(lines[1].splitlines())


def test_of_two_who_claim_a_plan_at_the_same_time_the_first_has_it(join: Join) -> None:
    one, other = join("one"), join("other")
    for _ in range(3):
        one.step()
    one.hear(), other.hear()
    chosen = one.vary()
    assert chosen is not None
    place = {"rung": 0}
    other.queue.is_taken = lambda _plan: False  # it looked before the first one began
    first = one.queue.claim(chosen, chosen.plan, place)
    assert first is not None
    assert other.queue.claim(chosen, chosen.plan, place) is None
    assert [trial.number for trial in running(one)] == [first.number]


def test_all_trials_begun_are_waited_for_and_no_more_is_begun(join: Join) -> None:
    one, other = join("one", Budget(trials=2)), join("other", Budget(trials=2))
    trials = one.begin(), other.begin()
    assert all(trials)
    third = join("third", Budget(trials=2))
    assert third.begin() is None
    assert third.reason_to_end() == ""
    one.end(trials[0])
    other.end(trials[1])
    third.hear()
    assert third.reason_to_end() == "2 trials are done"


def test_the_trial_of_a_dead_worker_is_tried_again_and_counts_once(join: Join, heard: Any) -> None:
    dead, other = join("dead", listener=heard), join("other", grace=1.0)
    lost = dead.begin()
    record = dead.train(lost)
    lost.set_constraint("useless", 9.0)  # it died while it finished the trial
    assert other.retired() == [lost.number]
    other.hear()
    numbers = set()
    for _ in range(6):
        other.step()
        numbers = {record.trial for record in other.study.records}
    again = [trial for trial in other.queue.study.get_trials() if trial.system_attrs.get("failed_trial") == lost.number]
    assert [trial.params for trial in again] == [lost.params]
    assert again[0].number in numbers
    assert again[0].constraints["useless"] < 1.0
    dead.keep(lost, record)  # it was only slow
    assert lost.number not in {record.trial for record in dead.study.records}
    assert heard.lines[-1] == f"trial {lost.number} was given to another worker meanwhile: it does not count"
    assert lost.number not in {json.loads(line)["trial"] for line in (dead.folder / TRIALS).read_text().splitlines()}


def chosen_by(worker: Worker) -> Composed:
    """Return a plan that the study of a worker suggests."""
    for _ in range(3):
        worker.step()
    chosen = worker.vary()
    assert chosen is not None
    return chosen


def test_a_plan_that_waits_to_be_tried_again_is_begun_by_nobody_else(join: Join) -> None:
    dead, other = join("dead"), join("other", grace=1.0)
    chosen = chosen_by(dead)
    lost = dead.queue.claim(chosen, chosen.plan, {"rung": 0})
    assert lost is not None
    assert other.retired() == [lost.number]
    other.hear()
    assert other.queue.is_taken(chosen.plan)
    other.queue.is_taken = lambda _plan: False  # it looked before
    assert other.queue.claim(chosen, chosen.plan, {"rung": 0}) is None
    other.hear()
    assert other.queue.waiting(0) is not None


def test_a_plan_begun_between_failing_and_return_is_not_begun_again(join: Join) -> None:
    one, other = join("one"), join("other")
    chosen = chosen_by(one)
    begun = one.queue.claim(chosen, chosen.plan, {"rung": 0})
    assert begun is not None
    retried = copy.copy(running(one)[0])
    retried.state = TrialState.WAITING
    one.queue.study.add_trial(retried)
    other.hear()
    assert other.queue.waiting(0) is None
    one.end(begun)
    other.hear()
    assert other.queue.waiting(0) is not None


def test_a_worker_that_dies_while_it_puts_a_plan_back_loses_nothing(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, dying, other = join("dead"), join("dying", grace=1.0), join("other", grace=1.0)
    lost = dead.begin()
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "set_state", lambda *_: False)  # it is killed before that
        dying.retired()
    for _ in range(2):
        other.step()
    other.hear()
    assert other.queue.waiting(0) is None  # the lost trial may end after all
    assert other.retired() == [lost.number]
    other.hear()
    again = [one for one in other.trials.all() if one.system_attrs.get(RETRIES) == [lost.number]]
    assert [is_void(one, other.trials.all()) for one in again] == [False, True]
    assert other.begin().number == again[0].number


def test_a_trial_that_ends_after_all_is_not_tried_again(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = join("slow"), join("other", grace=1.0)
    chosen = chosen_by(slow)
    trial = slow.queue.claim(chosen, chosen.plan, {"rung": 0})
    with monkeypatch.context() as patch:
        patch.setattr(Trials, "set_state", lambda *_: slow.end(trial))
        assert other.retired() == []
    other.hear()
    assert other.queue.waiting(0) is None
    assert not other.queue.is_taken(chosen.plan)
    assert states_of_retries(other, trial.number) == [TrialState.FAIL]


def test_of_two_who_claim_a_plan_one_may_die_before_it_gives_up(join: Join) -> None:
    one, dead, other = join("one"), join("dead"), join("other", grace=1.0)
    chosen = chosen_by(one)
    begun = one.queue.claim(chosen, chosen.plan, {"rung": 0})
    assert begun is not None
    second = copy.copy(running(one)[0])
    dead.trials.make(second)  # it is killed then
    one.end(begun)
    (retired,) = other.retired()
    other.hear()
    assert other.queue.waiting(0) is None
    assert states_of_retries(other, retired) == [TrialState.FAIL]


def states_of_retries(worker: Worker, number: int) -> list[TrialState]:
    return [one.state for one in worker.queue.study.get_trials() if one.system_attrs.get(RETRIES) == [number]]


def test_a_worker_that_marks_its_trial_is_left_alone(join: Join) -> None:
    slow, other = join("slow"), join("other", grace=1.0)
    trial = slow.begin()
    for _ in range(3):
        assert other.retired(meanwhile=slow.heartbeat.look) == []
    assert [one.number for one in running(other)] == [trial.number]


def test_a_worker_that_leaves_puts_its_trial_back_at_once(join: Join) -> None:
    one, other = join("one"), join("other")
    begun = one.begin()
    one.shared.leave()
    assert running(other) == []
    taken = other.begin()
    assert taken.number != begun.number
    failed = [trial.number for trial in other.queue.study.get_trials() if trial.state is TrialState.FAIL]
    assert failed == [begun.number]


def test_a_promotion_goes_to_whoever_is_free(join: Join, ladder_of_three: None, stand_in: Any) -> None:
    workers = [join(name, Budget(trials=14)) for name in ("one", "other")]
    for _ in range(7):
        for worker in workers:
            worker.step()
    workers[0].hear()
    records = workers[0].study.records
    promoted = [(record.promoted, record.rung) for record in records if record.promoted is not None]
    assert promoted
    assert len(promoted) == len(set(promoted))
    trained = stand_in.trained()
    assert len(trained) == len(set(trained))


def test_another_search_is_refused_by_what_differs(join: Join) -> None:
    join("one")
    with pytest.raises(RunError, match=r"is about another seed \(task made-up, space space, seed 3\): give the same"):
        join("other", seed=4)


def test_accuracies_are_shared_between_kinds_and_costs_are_not(join: Join) -> None:
    board, phone = join("board"), join("phone", device=PHONE, slower=10.0)
    board.step()
    board.hear()
    phone.hear()
    mine, theirs = board.study.records[0], phone.study.records[0]
    assert mine.kind == theirs.kind == BOARD.name
    assert mine.values["local_accuracy"] == theirs.values["local_accuracy"]
    assert theirs.values["train_seconds"] > 1.5 * mine.values["train_seconds"]
    assert theirs.plan.runtime.threads == PHONE.cores
    learned = phone.queue.learnable(0, phone.study.records)
    assert learned[0].values[-2:] != board.queue.learnable(0, board.study.records)[0].values[-2:]


@pytest.mark.parametrize("content", [{"state": "done", "plan": {"split": -1}}, {"state": "done", "plan": None}])
def test_a_damaged_record_is_left_out(content: Any, join: Join, heard: Any) -> None:
    one = join("one")
    trial = one.begin()
    one.trials.end(trial.number, None, {RECORD: content}, {})
    other = join("other", listener=heard)
    assert other.study.records == []
    assert any(line.startswith("warning: the record of trial 0 in the study cannot be read") for line in heard.lines)


@pytest.mark.parametrize("content", [None, {"task_name": 3}, {"identity": []}])
def test_a_study_of_somebody_else_is_refused(join: Join, address: str, content: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("tuner_fleet.study.join.DESCRIBED_SECONDS", 0.1)
    study = optuna.create_study(storage=address, study_name="tuner", directions=["maximize"])
    study.set_user_attr(RUN, content)
    with pytest.raises(RunError, match=r"holds a study, but none of tuner's|cannot be read"):
        join("one")
