"""Trials of the queue: what they train is known once they are begun, and no other worker trains it too."""

from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.search.shared.conftest import PHONE, Worker
from tuner.plugin.compose import Composed
from tuner.plugin.sources import preferred_values
from tuner.results.config import Budget
from tuner.search.journal import RUNG
from tuner.search.shared.content import KEY
from tuner.search.shared.taken import key_of

Join = Callable[..., Worker]
LOST = "trial 0 was given to another worker meanwhile: it does not count"


def anchor_of(worker: Worker) -> Composed:
    """Return the plan of the study's first trial, as if a worker suggested it."""
    return worker.study._compose(preferred_values(worker.queue.study.get_trials()[0].params))


def suggested(worker: Worker, chosen: Composed) -> Any:
    """Let a worker claim a plan that it suggested before others said that they train it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker.queue, "is_taken", lambda _plan: False)
        return worker.queue.claim(chosen, chosen.plan, {RUNG: 0})


def steps(*workers: Worker) -> None:
    """Let workers carry all trials of the queue through, and more."""
    for _ in range(6):
        for worker in workers:
            worker.step()


def test_a_first_plan_that_is_being_trained_is_begun_by_nobody_else(
    join: Join, stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = join("one"), join("other")
    anchor, run, begun = anchor_of(one), stand_in.run, list[Any]()

    def meanwhile(job: Any, *arguments: Any) -> Any:
        if job.method == "train" and not begun:
            other.hear()
            assert other.queue.is_taken(anchor.plan)
            begun.append(suggested(other, anchor))
        return run(job, *arguments)

    monkeypatch.setattr(stand_in, "run", meanwhile)
    one.step()
    assert begun == [None]
    steps(one, other)
    assert stand_in.trained().count(anchor.plan.key()) == 1


@pytest.mark.parametrize("ends", ["as it should", "unheard", "with its worker"])
def test_a_first_plan_that_another_worker_suggested_waits_until_that_has_ended(
    join: Join, stand_in: Any, ends: str
) -> None:
    one, other = join("one", Budget(trials=9), grace=1.0), join("other", Budget(trials=9))
    anchor, trial = anchor_of(one), one.begin()
    taken = suggested(other, anchor)
    assert taken is not None
    if ends == "unheard":
        other.end(taken)
    assert one.study._try(trial) is None
    states = {each.number: each.state for each in one.queue.study.get_trials()}
    assert states[trial.number] is TrialState.FAIL
    if ends == "with its worker":
        assert one.retired() == [taken.number]
    else:
        one.hear()
        following = one.begin()
        assert following.params != trial.params
        one.end(following)
    if ends == "as it should":
        other.end(taken)
    steps(one, other)
    assert stand_in.trained().count(anchor.plan.key()) == 1
    assert not [each for each in one.queue.study.get_trials() if each.state is TrialState.WAITING]


@pytest.mark.parametrize("last_look", ["of either after the other's end", "of both before"])
def test_of_two_first_plans_that_train_the_same_one_is_trained(join: Join, stand_in: Any, last_look: str) -> None:
    one, other = join("one", Budget(trials=9)), join("other", Budget(trials=9))
    anchor = anchor_of(one)
    one.queue.enqueue(anchor, {})
    trial = one.begin()
    for each in other.queue.study.get_trials()[1:3]:
        other.queue.study._storage.set_trial_state_values(each._trial_id, TrialState.FAIL)
    same = other.begin()
    assert same.params == trial.params
    for each in (trial, same):  # at the same moment
        each.set_user_attr(KEY, key_of(anchor.plan))
    with pytest.MonkeyPatch.context() as patch:
        if last_look == "of both before":
            other.hear()
            patch.setattr(other.queue, "_refresh", lambda: None)
        records = [one.study._try(trial), other.study._try(same)]
    trained = [record for record in records if record is not None]
    assert len(trained) == (last_look != "of both before")
    if trained:
        other.study._keep(same, trained[0])
    steps(one, other)
    assert stand_in.trained().count(anchor.plan.key()) == 1


def test_a_plan_that_one_kind_refused_is_begun_by_one_worker_of_another(join: Join, stand_in: Any) -> None:
    small = join("small", Budget(trials=6, memory_bytes=1_000), device=PHONE)
    small.step()
    large, third = join("large"), join("third")
    (back,) = [each for each in large.queue.study.get_trials() if "not-for" in each.user_attrs]
    for each in large.queue.study.get_trials()[1:3]:
        large.queue.study._storage.set_trial_state_values(each._trial_id, TrialState.FAIL)
    trial, chosen = large.begin(), large.study._compose(preferred_values(back.params))
    assert trial.number == back.number
    assert large.queue.hold(trial, chosen.plan)
    assert suggested(third, chosen) is None
    large.end(trial)
    assert stand_in.trained() == [chosen.plan.key()]


def test_what_the_sampler_suggests_is_known_to_the_others(join: Join) -> None:
    one, other = join("one", sampler="nsga2"), join("other", sampler="nsga2")
    for _ in range(3):
        one.step()
    trial = one.begin()
    assert trial.params == {}
    record = one.study._try(trial)
    assert record is not None
    assert record.plan is not None
    other.hear()
    assert other.queue.is_taken(record.plan)


def test_a_trial_that_was_given_to_another_before_it_was_composed_is_not_trained(
    join: Join, stand_in: Any, heard: Any
) -> None:
    slow, other = join("slow", listener=heard), join("other", grace=1.0)
    trial = slow.begin()
    assert other.retired() == [trial.number]
    assert slow.study._try(trial) is None
    assert heard.lines[-1] == LOST
    assert stand_in.trained() == []
