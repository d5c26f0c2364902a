"""Trials that are put back in the queue: by workers that leave them to others, and for workers that died."""

from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.plugins.fleet.conftest import PHONE, Worker
from tests.search.conftest import Heard
from tuner.results.records.config import Budget
from tuner.search.processes.guard import Interrupt
from tuner.search.trials.journal import RUNG
from tuner_fleet.study.claims import RETRIES
from tuner_fleet.study.content import HELD, KEY, NOT_FOR, WORKER
from tuner_fleet.study.heartbeat import MARK, MOST_RETRIES, put_back, retire

Join = Callable[..., Worker]


def trials_of(worker: Worker) -> list[FrozenTrial]:
    return worker.queue.study.get_trials()


def gives_way(worker: Worker, other: Worker) -> tuple[Any, Any]:
    """Let a worker put the next trial back, as another one trains its plan; return both trials."""
    trial = worker.begin()
    composed = worker.composed(trial)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other.queue, "is_taken", lambda _plan: False)
        taken = other.queue.claim(composed, composed.plan, {RUNG: 0})
    assert taken is not None
    worker.rests(lambda _: pytest.fail("there is nothing to wait for"))
    assert not worker.queue.hold(trial, composed.plan)
    return trial, taken


def test_a_trial_is_tried_again_however_often_it_gave_way(join: Join) -> None:
    one, other = join("one"), join("other")
    trial, taken = gives_way(one, other)
    plan = one.composed(trial).plan
    for _ in range(MOST_RETRIES + 1):
        assert one.trials.set_state(trial.number, TrialState.RUNNING)
        assert not one.queue.hold(trial, plan)
    assert len(trials_of(one)) == taken.number + 1
    other.end(taken)
    one.step()
    assert trials_of(one)[trial.number].state is TrialState.COMPLETE


def test_a_trial_that_gave_way_is_marked_by_whoever_begins_it_alone(join: Join) -> None:
    one, other, third = join("one"), join("other"), join("third")
    trial, taken = gives_way(one, other)
    other.end(taken)
    assert third.begin().number == trial.number
    one.heartbeat.look()
    assert MARK not in trials_of(one)[trial.number].user_attrs


def test_a_trial_that_is_interrupted_is_put_back_and_was_no_retry(join: Join) -> None:
    interrupt = Interrupt()
    one, other = join("one", interrupt=interrupt), join("other")
    begun = one.begin()
    assert one.train(begun) is not None
    assert trials_of(other)[begun.number].user_attrs[HELD]
    interrupt.ask()
    one.shared.leave()
    back = trials_of(other)[begun.number]
    assert (back.state, back.user_attrs[HELD]) == (TrialState.WAITING, False)
    assert RETRIES not in back.system_attrs
    assert len(trials_of(other)) == 3
    other.step()
    assert trials_of(other)[begun.number].state is TrialState.COMPLETE


def killed(join: Join) -> Any:
    """Return the trial that a worker began before it was killed."""
    dead = join("dead")
    dead.hear()
    waiting = [trial for trial in trials_of(dead) if trial.state is TrialState.WAITING]
    last = max(waiting, key=lambda trial: len(trial.system_attrs.get(RETRIES, ())))
    dead.trials.set_state(last.number, TrialState.RUNNING)
    return last


def test_a_plan_that_workers_die_of_is_given_up_and_each_worker_says_so(join: Join, heard: Any, stand_in: Any) -> None:
    said_by_one = Heard()
    one = join("one", Budget(trials=9), grace=1.0, listener=said_by_one)
    lost = []
    for _ in range(MOST_RETRIES + 1):
        lost.append(killed(join))
        assert one.retired() == [lost[-1].number]
    assert {str(trial.params) for trial in lost} == {str(lost[0].params)}
    said = f"warning: trial {lost[-1].number} is not tried again, as 4 workers have died while they tried its plan"
    later = join("later", listener=heard)
    for _ in range(2):
        one.hear()
        later.hear()
    assert heard.lines.count(said) == said_by_one.lines.count(said) == 1
    assert not [trial for trial in trials_of(one)[lost[-1].number + 1 :] if trial.params == lost[0].params]


def test_what_a_dead_worker_settled_is_open_again(join: Join) -> None:
    dead, other = join("dead"), join("other", grace=1.0)
    trial = dead.begin()
    assert dead.train(trial) is not None
    assert other.retired() == [trial.number]
    (again,) = (each for each in trials_of(other) if RETRIES in each.system_attrs)
    assert again.user_attrs[KEY] == trials_of(other)[trial.number].user_attrs[KEY]
    assert HELD not in again.user_attrs


def test_a_trial_that_was_put_back_meanwhile_is_not_retired_nor_the_other_way_round(join: Join) -> None:
    one, other = join("one"), join("other")
    trial = one.begin()
    put_back(one.trials, trial.number)
    assert not retire(other.trials, trial.number)
    assert one.states() == [TrialState.WAITING] * 3
    trial = one.begin()
    assert retire(other.trials, trial.number)
    assert not put_back(one.trials, trial.number)
    assert trials_of(one)[trial.number].state is TrialState.FAIL


def test_a_plan_that_gave_way_and_was_then_refused_may_be_suggested_where_there_is_room(join: Join) -> None:
    small, other = join("small", Budget(trials=9, memory_bytes=1_000), device=PHONE), join("other", device=PHONE)
    trial, taken = gives_way(small, other)
    other.trials.set_state(taken.number, TrialState.FAIL)
    small.step()
    (offered,) = (each for each in trials_of(small) if NOT_FOR in each.user_attrs)
    assert trials_of(small)[trial.number].user_attrs[KEY]
    assert not {KEY, HELD, WORKER} & offered.user_attrs.keys()
    other.hear()
    composed = other.composed(trial)
    assert other.queue.claim(composed, composed.plan, {RUNG: 0}) is not None  # it has more memory
