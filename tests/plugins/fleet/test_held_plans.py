"""Trials of the queue: what they train is known once they are begun, and no other worker trains it too."""

from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.plugins.fleet.conftest import PHONE, Worker
from tuner.plugin.compose import Composed
from tuner.results.records.config import Budget
from tuner.search.trials.journal import RUNG
from tuner_fleet.study.claims import LOOKS, key_of
from tuner_fleet.study.content import HELD, KEY
from tuner_fleet.study.heartbeat import put_back

Join = Callable[..., Worker]
LOST = "trial 0 was given to another worker meanwhile: it does not count"


def anchor_of(worker: Worker) -> Composed:
    """Return the plan of the study's first trial, as if a worker suggested it."""
    return worker.composed(worker.trials.all()[0])


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
    assert one.train(trial) is None
    states = {each.number: each.state for each in one.queue.study.get_trials()}
    assert states[trial.number] is TrialState.WAITING
    if ends == "with its worker":
        assert one.retired() == [taken.number]
    else:
        one.hear()
        following = one.begin()
        assert (following.number == trial.number) == (ends == "unheard")
        one.end(following)
    if ends == "as it should":
        other.end(taken)
    steps(one, other)
    assert stand_in.trained().count(anchor.plan.key()) == 1
    assert not [each for each in one.queue.study.get_trials() if each.state is TrialState.WAITING]


def trained_alike(one: Worker, other: Worker) -> list[Any]:
    """Let two workers begin a first plan each, and note at the same moment that they train the same."""
    anchor = anchor_of(one)
    one.queue.enqueue(anchor, {})
    trials = [one.begin()]
    for each in other.queue.study.get_trials()[1:3]:
        other.trials.set_state(each.number, TrialState.FAIL)
    other.hear()
    trials.append(other.begin())
    for each in trials:
        each.set_user_attr(KEY, key_of(anchor.plan))
    return trials


def meanwhile(worker: Worker, happens: Callable[[], object]) -> None:
    """Let something happen each time that a worker waits for others."""

    def rest(_seconds: float) -> None:
        happens()

    worker.rests(rest)


@pytest.mark.parametrize("first", ["lower", "higher"])
def test_of_two_first_plans_that_train_the_same_the_lower_one_is_trained(join: Join, stand_in: Any, first: str) -> None:
    one, other = join("one", Budget(trials=9)), join("other", Budget(trials=9))
    lower, higher = trained_alike(one, other)
    before, records = one.queue.study.get_trials(), list[Any]()
    if first == "lower":
        meanwhile(one, lambda: records.append(other.train(higher)))
        kept = one.train(lower)
    else:
        meanwhile(other, pytest.fail)  # it need not wait
        records.append(other.train(higher))
        kept = one.train(lower)
    assert records == [None]
    assert kept is not None
    after = one.queue.study.get_trials()
    assert len(after) == len(before)
    assert after[higher.number].state is TrialState.WAITING
    assert after[higher.number].system_attrs == before[higher.number].system_attrs
    meanwhile(other, int)
    other.hear()
    assert other.queue.waiting(0) is None  # until the lower one has ended
    one.keep(lower, kept)
    steps(one, other)
    assert len(stand_in.trained()) == len(set(stand_in.trained()))
    ended = one.queue.study.get_trials()[higher.number]
    assert ended.user_attrs["record"]["same_as"] == lower.number


@pytest.mark.parametrize("settled", ["before", "meanwhile"])
def test_a_higher_trial_that_is_settled_has_its_plan(join: Join, settled: str) -> None:
    one, other, rests = join("one"), join("other"), list[int]()
    lower, higher = trained_alike(one, other)
    if settled == "before":
        lower.set_user_attr(KEY, "not composed yet")
        assert other.train(higher) is not None

    def settle() -> None:  # it looked before the lower one noted what it trains
        rests.append(1)
        higher.set_user_attr(HELD, value=True)

    meanwhile(one, settle)
    assert one.train(lower) is None
    assert len(rests) == (settled == "meanwhile")
    assert one.queue.study.get_trials()[lower.number].state is TrialState.WAITING


def test_a_worker_that_dies_before_it_settles_is_not_waited_for(join: Join, stand_in: Any) -> None:
    one, dead = join("one", Budget(trials=9), grace=1.0), join("dead")
    lower, higher = trained_alike(one, dead)
    rests = list[int]()
    meanwhile(one, lambda: rests.append(1))
    assert one.train(lower) is None
    assert len(rests) == LOOKS - 1
    assert one.retired() == [higher.number]
    steps(one)
    assert len(stand_in.trained()) == len(set(stand_in.trained()))
    states = [each.state for each in one.queue.study.get_trials() if each.params == lower.params]
    assert states == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL]


def test_a_plan_that_every_worker_puts_in_the_queue_is_trained_once(join: Join, stand_in: Any) -> None:
    workers = [join(f"{number}", Budget(trials=20)) for number in range(5)]
    anchor, queue = anchor_of(workers[0]), workers[0].queue
    for each in queue.study.get_trials():
        workers[0].trials.set_state(each.number, TrialState.FAIL)
    for worker in workers:
        worker.queue.enqueue(anchor, {})
    trials = [worker.begin() for worker in workers]
    for each in trials:
        each.set_user_attr(KEY, key_of(anchor.plan))
    begun = queue.begun
    records = [worker.train(trial) for worker, trial in reversed(list(zip(workers, trials, strict=True)))]
    assert [record is None for record in records] == [True, True, True, True, False]
    for worker in workers:
        worker.hear()
        assert worker.queue.waiting(0) is None
    assert queue.begun == begun
    workers[0].keep(trials[0], records[-1])
    for worker in workers[1:]:
        worker.step()
    assert stand_in.trained() == [anchor.plan.key()]
    assert [each.state for each in queue.study.get_trials()[begun - 5 :]] == [TrialState.COMPLETE] * 5


def test_a_worker_that_loses_the_race_for_a_trial_does_not_begin_the_next_of_its_plan(join: Join) -> None:
    one, other = join("one"), join("other")
    for trial, worker in zip(trained_alike(one, other), (one, other), strict=True):
        put_back(worker.trials, trial.number)
    other.hear()  # both wait
    assert one.begin().number == 0
    assert other.queue.waiting(0) is None


def test_a_plan_that_one_kind_refused_is_begun_by_one_worker_of_another(join: Join, stand_in: Any) -> None:
    small = join("small", Budget(trials=6, memory_bytes=1_000), device=PHONE)
    small.step()
    large, third = join("large"), join("third")
    (back,) = [each for each in large.queue.study.get_trials() if "not-for" in each.user_attrs]
    for each in large.queue.study.get_trials()[1:3]:
        large.trials.set_state(each.number, TrialState.FAIL)
    trial, chosen = large.begin(), large.composed(back)
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
    record = one.train(trial)
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
    assert slow.train(trial) is None
    assert heard.lines[-1] == LOST
    assert stand_in.trained() == []
