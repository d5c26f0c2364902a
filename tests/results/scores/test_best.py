"""The default pick, what is named next to it, and the cuts that a run tried."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plan.plans import PLAN
from tuner.plan.parts import EditTraits, TailEdit
from tuner.results.records.baseline import packed
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.results.scores.cuts import cuts_of
from tuner.results.scores.objectives import OBJECTIVES
from tuner.results.scores.pareto import best, front, is_alike, is_worth_naming
from tuner.results.scores.strategies import NEVER, strategies_of

UNTOUCHED = {"local_accuracy": 0.1, "global_accuracy": 0.5}
SAMPLES = {"local": 100, "global": 400}
LEFT_OUT = "local_loo_accuracy"


def values(local: float, global_: float = 0.5, seconds: float = 1.0, loss: float | None = None) -> dict[str, float]:
    own = {"local_accuracy": local, "global_accuracy": global_, "train_seconds": seconds}
    return own if loss is None else {**own, "local_loss": loss}


def test_the_best_keeps_the_known_classes() -> None:
    members = {0: values(0.9, 0.3), 1: values(0.8, 0.49), 2: values(0.7, 0.55)}
    assert best(members, UNTOUCHED, SAMPLES) == 1
    assert best(members, UNTOUCHED, SAMPLES, forgetting=0.3) == 0
    assert best(members, UNTOUCHED, SAMPLES, forgetting=0.0) == 2
    assert best({0: values(0.9, 0.1), 1: values(0.8, 0.25)}, UNTOUCHED, SAMPLES) == 1, "none does: the larger sum"
    assert best({}, UNTOUCHED, SAMPLES) is None


def test_of_accuracies_that_so_few_samples_cannot_tell_apart_the_lowest_loss_is_best() -> None:
    members = {0: values(0.95, loss=0.4), 1: values(0.94, loss=0.2), 2: values(0.8, loss=0.1)}
    assert best(members, UNTOUCHED, SAMPLES) == 1
    assert best({0: values(0.95), 1: values(0.94)}, UNTOUCHED, SAMPLES) == 0
    assert best({0: values(0.95, seconds=9.0), 1: values(0.95)}, UNTOUCHED, SAMPLES) == 1


def test_of_losses_that_they_cannot_tell_apart_either_the_one_that_trained_the_most_is_best() -> None:
    members = {0: values(0.95, loss=0.200), 1: values(0.94, loss=0.215), 2: values(0.95, loss=0.3)}
    work = {0: 1.0, 1: 2.0, 2: 9.0}
    assert best(members, UNTOUCHED, SAMPLES) == 0
    assert best(members, UNTOUCHED, SAMPLES, work=work) == 1
    assert best(members, UNTOUCHED, SAMPLES | {"local": 1000}, work=work) == 0, "a thousand can"
    assert best({**members, 3: values(0.99, loss=0.01)}, UNTOUCHED, SAMPLES, work={**work, 3: 0.0}) == 3


def test_where_the_users_samples_are_all_right_the_known_ones_decide() -> None:
    few = {"local": 30, "global": 150}
    members = {0: values(1.0, 0.78, loss=0.0), 1: values(29 / 30, 0.97, loss=0.1), 2: values(28 / 30, 0.99)}
    assert best(members, UNTOUCHED, few) == 1
    assert best(members | {3: values(1.0, 0.99) | {LEFT_OUT: 0.9}}, UNTOUCHED, few) == 1, "leave-one-out has errors"
    assert best(members, UNTOUCHED, few | {"local": 300}) == 0, "of 300, ten errors are more than none"
    assert best({1: members[1], 0: values(29 / 30, 0.5, loss=0.0)}, UNTOUCHED, few) == 0, "none has all right"


def test_leave_one_out_chooses_among_heads_and_local_val_between_a_head_and_a_tail() -> None:
    heads = {0: values(0.95) | {LEFT_OUT: 0.90}, 1: values(0.93) | {LEFT_OUT: 0.92}}
    assert best(heads, UNTOUCHED, SAMPLES) == 1
    assert best({**heads, 2: values(0.94)}, UNTOUCHED, SAMPLES) == 2, "a tail is compared on local.val"
    assert best({**heads, 2: values(0.92)}, UNTOUCHED, SAMPLES) == 1
    tails = {2: values(0.94, loss=0.3), 4: values(0.92, loss=0.2)}
    assert best({**heads, **tails}, UNTOUCHED, SAMPLES) == 4, "the highest is above the head; the loss decides"
    cheap = heads[1] | {"train_seconds": 0.5}
    assert best({**heads, 5: cheap}, UNTOUCHED, SAMPLES) == 5, "of equal heads, the cheaper"
    forgets = {**heads, 3: values(0.99, 0.3) | {LEFT_OUT: 0.99}}
    assert best(forgets, UNTOUCHED, SAMPLES) == 1


def test_what_is_surely_worse_is_not_named_unless_another_domain_gains() -> None:
    chosen = values(0.95)
    assert is_worth_naming(values(0.92), chosen, SAMPLES, OBJECTIVES)
    assert not is_worth_naming(values(0.6), chosen, SAMPLES, OBJECTIVES)
    assert is_worth_naming(values(0.6, 0.8), chosen, SAMPLES, OBJECTIVES)
    assert not is_alike(values(0.6, 0.8), chosen, SAMPLES, OBJECTIVES)
    assert not is_alike(values(0.92), chosen, SAMPLES, OBJECTIVES), "more than a standard error below"
    assert is_alike(values(0.94), chosen, SAMPLES, OBJECTIVES)


def test_what_forgets_is_not_alike_however_right_it_is_on_the_users_samples() -> None:
    assert not is_alike(values(0.96, 0.1), values(0.95), SAMPLES, OBJECTIVES)
    assert not is_worth_naming(values(0.96, 0.1), values(0.95), SAMPLES, OBJECTIVES)
    assert is_worth_naming(values(0.99, 0.1), values(0.85), SAMPLES, OBJECTIVES), "surely better on the user's"


def test_a_lower_loss_tells_equal_accuracies_apart_and_no_others() -> None:
    records = [
        TrialRecord(trial, "done", PLAN, values=one)
        for trial, one in enumerate((values(0.9, loss=0.9), values(0.9, loss=0.1), values(0.95, loss=5.0)))
    ]
    found = [one["local_accuracy"] for one in comparable(records).values()]
    assert found[0] < found[1] < found[2]
    assert found[0] > 0.9 - 0.5 / PLAN.local_scored


def test_a_head_that_the_judging_samples_flatter_counts_with_all_samples_and_tails_with_what_they_owe_to_them() -> None:
    plan = replace(PLAN, task=replace(PLAN.task, local_train=320, local_val=80))
    order = np.random.default_rng(0).permutation(80)

    def judged(trial: int, right: np.ndarray, **more: float) -> TrialRecord:
        own = {"local_accuracy": float(right.mean()), "train_seconds": 1.0 + trial, **more}
        return TrialRecord(trial, "done", plan, values=own, right=(packed(right),))

    head = np.isin(np.arange(80), order[:58])
    alike, other = np.isin(np.arange(80), order[1:58]), np.isin(np.arange(80), [*order[8:50], *order[58:73]])
    records = [judged(0, head, local_loo_accuracy=0.63), judged(1, alike), judged(2, other), judged(3, head | ~head)]
    found = {trial: one["local_accuracy"] for trial, one in comparable(records).items()}
    assert found[0] == 0.63, "72.5 % of those that judge it, and with the others, each left out"
    assert found[1] == pytest.approx(57 / 80 - 0.97 * (0.725 - 0.63), abs=0.003), "right where the head is"
    assert found[2] > found[1], "as many, which says less of how easy they are"
    assert found[3] == 1.0
    ahead = replace(records[2], trial=4, values={**records[2].values, "local_accuracy": 0.7})
    both = [one for one in OBJECTIVES if one.name in {"local_accuracy", "train_seconds"}]
    assert 4 in front(comparable([records[0], ahead]), both), "it costs more, and the head is flattered"
    alone = comparable(records[1:])
    assert alone[1]["local_accuracy"] == 57 / 80, "without a head that was left out, it is what judges it"
    others = replace(records[2], right=(packed(np.ones(400, bool)),))
    assert comparable([records[0], others])[2]["local_accuracy"] == 57 / 80, "of other samples"


def test_the_cuts_of_a_run_from_the_head_to_the_whole_model() -> None:
    head = replace(PLAN, split=19, shape=(TailEdit("s", traits=EditTraits(solves=True)),))
    records = [
        TrialRecord(0, "done", head, values=values(0.7), spent_seconds=0.5),
        TrialRecord(1, "done", replace(PLAN, split=15), values=values(0.8), spent_seconds=2.0, rung=1),
        TrialRecord(2, "done", replace(PLAN, split=15), values=values(0.75), spent_seconds=4.0),
        TrialRecord(3, "rejected", replace(PLAN, split=0), reason="--time: needs more"),
    ]
    worse, better = (
        TrialRecord(4 + place, "done", head, values=values(local) | {LEFT_OUT: every})
        for place, (local, every) in enumerate(((0.8, 0.75), (0.78, 0.77)))
    )
    assert cuts_of([worse, better])[0].trial == 5
    found = cuts_of(records)
    assert [(cut.name, cut.tried, cut.trial, cut.seconds) for cut in found] == [
        ("head in closed form", 1, 0, 0.5),
        ("last 5 of 20 blocks", 2, 2, 6.0),
        ("the whole model", 0, None, 0.0),
    ]
    assert found[1].local_accuracy == 0.75, "of the highest rung"
    assert found[2].reason == "--time: needs more"
    exits = Run.open(Path(__file__).parents[2] / "fixtures" / "exits" / "run").records[0].plan
    assert exits is not None
    alone = TrialRecord(9, "done", replace(exits, split=exits.model.num_blocks), values=values(0.6))
    assert [(cut.name, cut.blocks) for cut in cuts_of([*records, alone])][:2] == [
        ("none (early exits alone)", 0),
        ("head in closed form", 0),
    ]


def test_strategies_of_a_run_by_what_they_changed_and_what_the_front_would_lose_without_them() -> None:
    def trial(number: int, local: float, *names: str, **more: Any) -> TrialRecord:
        scores = {"local_accuracy": local, "global_accuracy": 0.5} if "reason" not in more else {}
        return TrialRecord(number, more.pop("state", "done"), PLAN, values=scores, strategies=("cut", *names), **more)

    records = [
        trial(0, 0.7, "closed", spent_seconds=1.0),
        trial(1, 0.9, "low-rank", spent_seconds=4.0),
        trial(2, 0.6, "low-rank", "closed", spent_seconds=2.0),
        trial(3, 0.0, "grows", state="rejected", reason="--memory: needs more"),
    ]
    closed, low, grows, never = strategies_of(("cut", "closed", "low-rank", "grows", "never"), records)
    assert (closed.name, closed.tried, closed.trial, closed.best, closed.seconds) == ("closed", 2, 0, 0.7, 3.0)
    assert (low.tried, low.trial, low.reason) == (2, 1, "")
    assert (closed.adds, low.adds) == pytest.approx((0.0, 0.5 * (0.9 - 0.7)))
    assert [(one.tried, one.trial, one.best, one.reason) for one in (grows, never)] == [
        (0, None, None, "--memory: needs more"),
        (0, None, None, NEVER),
    ]
