"""The ladder of structures: what is tried next, what is continued, and what may still be gained."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.plan.plans import PLAN
from tests.search.settings import setting
from tuner.backends.base import CHECKPOINT
from tuner.plan.example import example_model, example_task
from tuner.plan.parts import EditTraits, RecipePlan, Scalar, TailEdit
from tuner.plan.trial import TrialPlan
from tuner.planner.price import price
from tuner.plugin.compose import Composed
from tuner.plugin.compose import compose as compose_of
from tuner.plugin.core import build_host
from tuner.plugin.knobs import Choice, Knob, Numeric, ValueSource
from tuner.plugin.sources import preferred_values
from tuner.results.records.config import Budget
from tuner.results.records.trial import TrialRecord
from tuner.search.propose.anchors import anchors
from tuner.search.propose.checkpoints import Checkpoints
from tuner.search.propose.lines import UNKNOWN_PACE, can_continue, is_head, structure_of
from tuner.search.propose.structures import DIVERGED, KEEPING, MORE_SECONDS, MORE_SHARE, Structures
from tuner.search.setting import participants
from tuner.search.space import load_space

DEPTH, EPOCHS, RATE, ALPHA = "freeze.trainable_blocks", "recipe.epochs", "recipe.learning_rate", "mix.alpha"
KNOBS: dict[str, Knob] = {
    DEPTH: Choice(DEPTH, (1, 2, 5, 20)),
    EPOCHS: Numeric(EPOCHS, 1, 64, whole=True, log=True),
    RATE: Numeric(RATE, 1e-5, 1e-1, whole=False, log=True),
    ALPHA: Numeric(ALPHA, 0.0, 1.0, whole=False, log=False),
}
RECIPE = RecipePlan(schedule="warmup", batch_size=16, solve_again=True)
SOLVED = TailEdit("solved", traits=EditTraits(solves=True))


def plan_of(values: Mapping[str, Scalar]) -> TrialPlan:
    recipe = replace(RECIPE, epochs=int(values[EPOCHS]), learning_rate=float(values[RATE]))
    data = replace(PLAN.data, alpha=float(values[ALPHA]))
    return replace(PLAN, split=20 - int(values[DEPTH]), recipe=recipe, data=data)


def compose(source: ValueSource) -> Composed:
    values = {name: source(knob) for name, knob in KNOBS.items()}
    return Composed(plan_of(values), values, KNOBS)


def composed(blocks: int, epochs: int = 8, rate: float = 1e-3) -> Composed:
    values: dict[str, Scalar] = {DEPTH: blocks, EPOCHS: epochs, RATE: rate, ALPHA: PLAN.data.alpha}
    return Composed(plan_of(values), values, KNOBS)


def record(trial: int, blocks: int, local: float, epochs: int = 4, **rest: Any) -> TrialRecord:
    one = composed(blocks, epochs, rest.pop("rate", 1e-3))
    values = {"local_accuracy": local, "global_accuracy": 0.5}
    given = {"state": "done", "values": values, **rest}
    return TrialRecord(trial=trial, plan=one.plan, knobs=one.values, **given)


HEAD = replace(PLAN, split=19, shape=(SOLVED,))


def structures(seconds: Callable[[Composed], float] = lambda one: one.plan.trainable) -> Structures:
    """Return a ladder of three cuts and a head, which was tried on rung 0; a cut of n blocks takes n seconds."""

    def takes(one: Composed, rung: int) -> float:
        return math.inf if one.plan == HEAD and rung == 0 else seconds(one)

    made = Structures(setting(), compose, takes, lambda _rung: 0.0)
    made.begin([composed(20), composed(2), composed(1), composed(5), Composed(HEAD, {}, {})])
    return made


def test_the_ladder_begins_at_the_cheap_end_with_little_training_and_leaves_out_a_head_that_is_solved_for_anyway() -> (
    None
):
    ladder = structures()
    assert [one.plan.trainable for one in ladder.anchors] == [1, 2, 5, 20]
    assert ladder.anchors[0].plan.traits.solves
    steps = {-(-one.plan.train_samples // 16) * one.plan.recipe.epochs for one in ladder.anchors[1:]}
    assert all(count >= 64 for count in steps)
    assert all(one.plan.recipe.epochs >= 2 for one in ladder.anchors[1:])


def test_each_cut_is_tried_once_on_a_rung_from_the_cheap_end_where_there_is_time() -> None:
    ladder = structures()
    head = replace(record(0, 1, 0.6), plan=ladder.anchors[0].plan)
    records = [head]
    found = ladder.next(records, 0, 120.0)
    assert found is not None
    assert found.plan.trainable == 2
    records += [record(1, 2, 0.7), record(2, 5, 0.8)]
    deepest = ladder.next(records, 0, 120.0)
    assert deepest is not None
    assert deepest.plan.trainable == 20
    assert ladder.next(records, 0, 95.0) is None, "it takes 20 s, and there would be no time to go on with it"
    in_a_hurry = ladder.next([head], 0, 30.0)
    assert in_a_hurry is not None
    assert in_a_hurry.plan.trainable == 5, "of those that there is time for, the deepest"
    late = ladder.next([head], 0, 6.5)
    assert late is not None
    assert late.plan.trainable == 5, "it takes 5 of 6.5 s, and a shallower one would bring less"
    ladder = structures(lambda one: one.plan.trainable * one.plan.recipe.epochs / 22)
    assert [one.plan.recipe.epochs for one in ladder.anchors if one.plan.trainable == 5] == [22]
    later = ladder.next([head], 0, 4.0)
    assert later is not None
    assert (later.plan.trainable, later.plan.recipe.epochs) == (5, 14), "for as many epochs as there is time for"
    on_another = ladder.next(records, 1, 100.0)
    assert on_another is not None
    assert on_another.plan.trainable == 1


def test_no_head_is_promoted_while_a_tail_can_be_tried() -> None:
    ladder = structures()
    head, tail = replace(record(0, 1, 0.9), plan=ladder.anchors[0].plan), record(1, 2, 0.8)
    assert ladder.promotable([head], 0, 1000.0) == []
    assert ladder.promotable([head, tail], 0, 1000.0) == [head, tail]
    assert ladder.promotable([head], 0, 1.0) == [head], "no tail fits into a second"
    assert ladder.promotable([head], 0, math.inf) == [head], "there is time for all"
    few = replace(setting(), limits=Budget(trials=12))
    limited = Structures(few, compose, lambda _one, _rung: 1.0, lambda _rung: 0.0)
    limited.anchors = ladder.anchors
    assert limited.promotable([head], 0, 1000.0) == [head], "trials are few"


def test_a_diverged_training_comes_back_at_a_third_of_its_rate_and_its_depth_is_not_blamed() -> None:
    ladder = structures()
    broken = record(1, 5, 0.0, rate=3e-3, state="failed", values={}, constraint={DIVERGED: 1.0})
    records = [replace(record(0, 1, 0.6), plan=ladder.anchors[0].plan), record(2, 2, 0.7), broken]
    again = ladder.next(records, 0, 100.0)
    assert again is not None
    assert again.plan.trainable == 5
    assert again.plan.recipe.learning_rate == pytest.approx(1e-3)
    thrice = [*records, *(replace(broken, trial=3 + more) for more in range(2))]
    after = ladder.next(thrice, 0, 100.0)
    assert after is not None
    assert after in ladder.anchors, "no third retry"


def test_a_model_that_is_not_to_forget_is_trained_at_a_lower_rate() -> None:
    assert PLAN.task.global_per_class
    rates = [one.plan.recipe.learning_rate for one in structures().anchors[1:]]
    assert rates == pytest.approx([KEEPING] * 3)


def test_where_forgetting_is_allowed_the_first_plans_mix_no_known_samples_in_at_their_own_rate() -> None:
    free = setting(limits=Budget(forgetting=1.0))
    made = Structures(free, compose, lambda one, _rung: one.plan.trainable, lambda _rung: 0.0)
    made.begin([compose(preferred_values({**composed(blocks).values, ALPHA: 0.5})) for blocks in (2, 5)])
    assert [one.plan.data.alpha for one in made.anchors] == [0.0, 0.0]
    assert [one.plan.recipe.learning_rate for one in made.anchors] == pytest.approx([1e-3] * 2)
    made.begin([compose(preferred_values({**composed(blocks).values, ALPHA: 0.5})) for blocks in (1, 5)])
    tried = [(one.plan.trainable, one.plan.data.alpha) for one in made.anchors]
    assert sorted(tried) == [(1, 0.0), (1, 0.5), (5, 0.0)], "heads both ways"


def test_the_best_training_is_tried_at_rates_on_both_sides_until_both_are_worse() -> None:
    ladder = structures()
    records = [record(0, 2, 0.7), record(1, 5, 0.9, epochs=8, rate=1e-3)]
    lower = ladder.other_rate(records, 0, 100.0)
    assert lower is not None
    assert (lower.plan.trainable, lower.plan.recipe.epochs) == (5, 8)
    assert lower.plan.recipe.learning_rate == pytest.approx(4e-4)
    better = record(2, 5, 0.95, epochs=8, rate=4e-4)
    lowest = ladder.other_rate([*records, better], 0, 100.0)
    assert lowest is not None
    assert lowest.plan.recipe.learning_rate == pytest.approx(1.6e-4)
    worse = record(3, 5, 0.9, epochs=8, rate=1.6e-4)
    assert ladder.other_rate([*records, better, worse], 0, 100.0) is None
    assert ladder.other_rate(records, 0, 4.0) is None, "there is no time for it"


def test_the_line_with_most_to_gain_is_continued_for_twice_as_long() -> None:
    ladder = structures()
    records = [record(0, 2, 0.7), record(1, 5, 0.9)]
    longer = ladder.longer(records, 0, 100.0)
    assert longer is not None
    assert (longer.plan.trainable, longer.plan.recipe.epochs) == (5, 8)
    short_of_time = ladder.longer(records, 0, 4.0)
    assert short_of_time is None or short_of_time.plan.recipe.epochs < 8


def test_lines_that_forget_too_much_are_continued_last() -> None:
    careful = Structures(setting(), compose, lambda one, _rung: one.plan.trainable, lambda _rung: 0.48)
    forgetful = record(0, 5, 0.8, values={"local_accuracy": 0.8, "global_accuracy": 0.4})
    records = [forgetful, record(1, 20, 0.75), record(2, 2, 0.79)]
    found = list[int]()
    for _ in range(3):
        next_, _ = careful.choose(records, 0, 1000.0, lambda _one: True)
        assert next_ is not None
        found.append(next_.plan.trainable)
        records.append(record(len(records), found[-1], 0.5, next_.plan.recipe.epochs))
    assert found == [20, 2, 5]


def test_a_line_that_longer_training_left_as_it_was_twice_is_given_up() -> None:
    ladder = structures()
    line = [record(trial, 5, 0.9, epochs) for trial, epochs in enumerate((4, 8, 16))]
    assert [one.stalled for one in ladder.lines(line)] == [2]
    assert ladder.longer(line, 0, 100.0) is None
    grown = [*line, record(3, 5, 0.95, 32)]
    assert ladder.longer(grown, 0, 100.0) is not None


def test_a_line_waits_where_at_best_it_may_bring_no_more_than_the_samples_can_show() -> None:
    ladder = structures()
    line = record(0, 5, 0.9)  # a fourth of its errors would add 0.075 × 0.5
    records = [replace(record(1, 1, 0.6), plan=ladder.anchors[0].plan), record(2, 2, 0.7), line, record(3, 20, 0.5)]
    first, _ = ladder.choose(records, 0, 100.0, lambda _one: True, 0.03)
    assert first is not None
    assert (first.plan.trainable, first.plan.recipe.epochs) == (5, 8)
    assert ladder.choose(records, 0, 100.0, lambda _one: True, 0.04) == (None, None)


def test_a_head_that_needs_many_more_known_samples_is_left_out_where_these_take_more_than_a_little_of_the_time() -> (
    None
):
    wide = Composed(replace(HEAD, data=replace(HEAD.data, alpha=1.0)), {}, {})
    made = Structures(setting(), compose, lambda one, _rung: 40.0 if one is wide else 30.0, lambda _rung: 0.0)
    made.begin([Composed(HEAD, {}, {}), wide])
    assert len(made.anchors) == 2
    tried = [replace(record(0, 1, 0.9), plan=HEAD)]
    whole, own = (price(one, made._setting.rates) for one in (wide.plan, HEAD))
    more = (wide.plan.pool_samples - HEAD.pool_samples) * own.fill_seconds + whole.loop_seconds - own.loop_seconds
    assert more > MORE_SECONDS
    assert made.next([], 0, 70.0) is not None, "the cheapest takes what it takes"
    assert made.next(tried, 0, 0.9 * more / MORE_SHARE) is None
    assert made.next(tried, 0, max(100.0, 1.1 * more / MORE_SHARE)) is wide
    quick = Structures(setting(), compose, lambda _one, _rung: MORE_SECONDS, lambda _rung: 0.0)
    quick.anchors = made.anchors
    assert quick.next(tried, 0, 3 * MORE_SECONDS) is wide, "their features are stored"


def test_a_line_that_would_stay_behind_the_front_with_a_fourth_of_its_errors_is_not_continued() -> None:
    ladder, head = structures(), replace(record(9, 1, 0.98), plan=HEAD)
    assert ladder.longer([head, record(0, 5, 0.91)], 0, 100.0) is None
    longer = ladder.longer([head, record(0, 5, 0.91), record(1, 2, 0.93)], 0, 100.0)
    assert longer is not None
    assert (longer.plan.trainable, longer.plan.recipe.epochs) == (2, 8)


def test_nothing_is_hoped_for_where_all_is_right_or_all_was_tried() -> None:
    ladder = structures()
    assert ladder.hope([], 0, 100.0) == math.inf
    perfect = {"local_accuracy": 1.0}
    assert ladder.hope([record(0, 2, 1.0, values=perfect)], 0, 100.0) == 0.0
    assert ladder.hope([record(0, 2, 0.8)], 0, 100.0) > 0.04
    done = [
        record(3 * number + more, blocks, 0.8, 4 * 2**more)
        for number, blocks in enumerate((2, 5, 20))
        for more in range(3)
    ]
    head = replace(record(90, 1, 0.6), plan=ladder.anchors[0].plan)
    assert ladder.hope([head, *done], 0, 1000.0) > 0.0, "other learning rates were not tried"
    rate = float(done[0].knobs["recipe.learning_rate"])
    rates = [record(91 + more, 2, 0.4, rate=rate * factor) for more, factor in enumerate((0.4, 2.5))]
    assert ladder.hope([head, *done, *rates], 0, 1000.0) == 0.0


def test_known_classes_weigh_nothing_where_they_may_be_forgotten() -> None:
    keeps = record(0, 2, 0.7, values={"local_accuracy": 0.7, "global_accuracy": 0.6})
    here = [keeps, record(1, 5, 0.9, values={"local_accuracy": 0.9, "global_accuracy": 0.1})]
    for limit, gains in ((None, True), (0.1, True), (0.9, True), (1.0, False)):
        limited = replace(setting(), limits=replace(setting().limits, forgetting=limit))
        made = Structures(limited, compose, lambda one, _rung: one.plan.trainable, lambda _rung: 0.0)
        assert (made.most(composed(2).plan, here) > 0) is gains, f"at most 0.85 of the user's, with a limit of {limit}"


def test_a_structure_may_bring_less_the_more_often_it_was_tried_and_a_new_one_anything() -> None:
    ladder, plan = structures(), composed(5).plan
    tried = [record(trial, 5, 0.8, rate=1e-4 * (1 + trial)) for trial in range(4)]
    once, often = ladder.most(plan, tried[:1]), ladder.most(plan, tried)
    assert once == pytest.approx(0.5 * 0.1), "half of the errors, at the global accuracy that is known"
    assert often == pytest.approx(0.5 * 0.2 * (1 - 0.5**0.25))
    assert ladder.most(composed(2).plan, tried) == math.inf


def test_exits_and_a_coreset_are_among_the_first_plans_of_a_study() -> None:
    space = load_space("every-strategy")
    strategies = participants(build_host(), space)[0]
    given = replace(setting(), strategies=strategies, model=example_model(4))

    def made(source: ValueSource) -> Composed:
        return compose_of(strategies, source, example_model(4), example_task(), space.knobs)

    ladder = Structures(given, made, lambda _one, _rung: 1.0, lambda _rung: 0.0)
    ladder.begin(list(anchors(given, made, climbs=True)))
    plans = [one.plan for one in ladder.anchors]
    assert any(plan.heads.exits for plan in plans)
    assert any(plan.data.edit is not None for plan in plans)


def test_what_a_head_and_a_structure_are() -> None:
    assert is_head(composed(1).plan)
    assert not is_head(composed(2).plan)
    assert structure_of(composed(2).plan) == structure_of(composed(2, 16, 1e-2).plan) != structure_of(composed(5).plan)
    cosine = replace(composed(2).plan, recipe=replace(RECIPE, schedule="cosine"))
    assert can_continue(composed(2).plan)
    assert not can_continue(cosine)
    assert not can_continue(replace(PLAN, shape=(SOLVED,)))


def test_a_checkpoint_is_continued_by_longer_training_and_kept_of_the_best_alone(tmp_path: Path) -> None:
    kept = Checkpoints(lambda trial: tmp_path / str(trial) / "w")
    records = [record(0, 5, 0.8), record(1, 5, 0.7, rate=1e-4), record(2, 2, 0.6)]
    for one in records:
        (tmp_path / str(one.trial)).mkdir()
        (tmp_path / str(one.trial) / CHECKPOINT).touch()
        kept.ended(one)
    longer = composed(5, 12).plan
    due = kept.due(longer)
    assert due is not None
    assert due.recipe.epochs == 8
    assert kept.earlier(longer) == tmp_path / "0" / CHECKPOINT
    assert kept.has_room(longer, None)
    assert not kept.has_room(longer, 1000)
    assert kept.due(composed(5, 2).plan) is None, "shorter than what was trained"
    assert kept.due(composed(20, 8).plan) is None
    kept.prune(records, [])
    assert [(tmp_path / str(trial) / CHECKPOINT).exists() for trial in range(3)] == [True, False, True]
    failed = replace(records[0], state="failed")
    kept.ended(failed)
    assert not (tmp_path / "0" / CHECKPOINT).exists()


def test_a_line_is_expected_to_learn_as_fast_as_it_did_the_last_time() -> None:
    ladder = structures()
    paces = {
        "new": [record(9, 20, 0.8)],
        "fast": [record(0, 5, 0.8), record(1, 5, 0.95, 8)],
        "slow": [record(0, 5, 0.8), record(1, 5, 0.85, 8)],
        "stalled": [record(0, 5, 0.8), record(1, 5, 0.8, 8)],
    }
    found = {name: ladder.lines(records)[0].pace for name, records in paces.items()}
    assert found == {"new": UNKNOWN_PACE, "fast": 0.5, "slow": pytest.approx(0.75), "stalled": 1.0}
    deep, shallow = record(0, 20, 0.78), record(1, 2, 0.85)
    longer = structures().longer([deep, shallow, record(2, 2, 0.855, 8)], 0, 1000.0)
    assert longer is not None
    assert longer.plan.trainable == 20, "how fast it learns is not known yet"
    shallow_pace = ladder.lines([record(8, 1, 0.8)])[0].pace
    assert UNKNOWN_PACE < shallow_pace < 1, "the head alone hardly learns more by longer training"
