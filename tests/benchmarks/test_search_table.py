"""The recorded tables, and what is replayed on them."""

import pytest

from benchmarks.search.record import TASKS
from benchmarks.search.replay import Replay, Table, ours, plain
from benchmarks.search.table import ARMS, DEFAULT, OURS, SHARES, claims, table_of
from benchmarks.search.table import PLAIN as SAMPLERS
from tuner.plugin.sources import preferred_values


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_every_combination_has_scores_on_every_rung(name: str) -> None:
    table = table_of(name)
    assert len(table.recorded) >= 300
    for values in table.recorded:
        one = table.compose(preferred_values(values))
        assert table.scores(one, 0)["seconds"] > 0
        assert 0 <= table.scores(one, 3)["local_accuracy"] <= 1


@pytest.mark.slow
def test_what_lies_between_is_rounded_to_the_grid() -> None:
    table = table_of("digits")
    low, high = (table.compose(preferred_values({"recipe.learning_rate": rate})) for rate in (2.6e-3, 2.8e-3))
    assert table.key(low) != table.key(high)  # 1.5e-3 and 5e-3 meet at their geometric mean
    assert table.scores(low, 0) != table.scores(high, 0)


@pytest.mark.slow
def test_a_replay_is_the_same_twice_and_its_front_grows() -> None:
    table: Table = table_of("digits")
    first, second = ours(table, "tpe", 1), ours(table, "tpe", 1)
    assert first.curve == second.curve
    assert first.clock.seconds >= table.budget
    sizes = [size for _, size in first.curve]
    assert sizes == sorted(set(sizes))
    assert 0 <= first.regret(1.0) < first.regret(0.05) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("halving", [True, False])
def test_a_plan_that_was_tried_before_costs_nothing(halving: bool) -> None:
    replay: Replay = plain(table_of("digits"), SAMPLERS["random"], 0, halving=halving)
    spent = sum(record.spent_seconds for record in replay.records)
    assert spent == pytest.approx(replay.clock.seconds)
    table = replay.table
    plans = [(table.compose(preferred_values(one.knobs)), one) for one in replay.records if one.spent_seconds]
    keys = [(table.key(plan), record.rung) for plan, record in plans]
    assert len(keys) == len(set(keys))
    assert {record.rung for record in replay.records} == ({0, 1} if halving else {0})


def test_an_arm_that_may_be_better_is_not_ruled_out_by_few_seeds() -> None:
    def nowhere_worse(spread: float) -> bool:
        """Return whether the claim holds where Optuna's arm is worse in the mean, seeds that far apart."""
        tasks, arm = ("a", "b", "c"), next(name for name in ARMS if name not in OURS)
        regrets = {(task, DEFAULT, seed): [0.1] * len(SHARES) for task in tasks for seed in range(3)}
        apart = {(task, arm, seed): 0.12 + (seed - 1) * (spread if task == "c" else 0.001) for task, _, seed in regrets}
        regrets |= {job: [value] * len(SHARES) for job, value in apart.items()}
        return claims(regrets, tasks, {DEFAULT: 3, arm: 3})[0].met

    assert nowhere_worse(0.001)
    assert not nowhere_worse(0.05)
