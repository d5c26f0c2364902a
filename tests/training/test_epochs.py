"""One loop for whatever trains: the order of samples, their weights, batches, rates, patience, stops, states."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.arrays import Labels, RowNumbers
from tuner.errors import TrainingError
from tuner.plan.parts import DataPlan, RecipePlan
from tuner.training.emphasis import balanced_order, epoch_order, sample_weights
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import BetweenEpochs, Entry, TrainingLog, epochs_since_best, train_epochs
from tuner.training.schedule import batches_of, even_batches_of, scheduled_rate
from tuner.training.steps import Steps


class Noted(Steps):
    """Notes its batches and rates; the loss of a batch is given by its number, from 0."""

    def __init__(self, losses: Mapping[int, float] | None = None, *, norms_train: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.rates: list[float] = []
        self.calls: list[str] = []
        self.norms_train, self._losses = norms_train, losses or {}

    def begin_epoch(self) -> None:
        self.calls.append("begin")

    def step(self, rows: RowNumbers, rate: float) -> float:
        self.batches.append(rows.tolist())
        self.rates.append(rate)
        return self._losses.get(len(self.batches) - 1, 1.0)

    def end_epoch(self) -> None:
        self.calls.append("end")

    def evolve(self, epoch: int, room: int | None) -> Mapping[str, float]:
        self.calls.append(f"evolve {epoch} in {room}")
        return {"evolve_seconds": 100.0}

    def state(self) -> dict[str, Any]:
        return {"steps": len(self.batches)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.batches = [[]] * state["steps"]


def recipe(epochs: int = 3, batch_size: int = 4, **more: Any) -> RecipePlan:
    return RecipePlan(epochs=epochs, batch_size=batch_size, learning_rate=0.5, **more)


def test_every_epoch_is_a_seeded_permutation_in_batches_at_the_scheduled_rate() -> None:
    steps, reported = Noted(), []
    loop = EpochLoop(steps, recipe(), 10, 7)
    results = list(loop.epochs(lambda step, of: reported.append((step, of)) or False))  # type: ignore[func-returns-value]
    order = np.random.default_rng(7)
    expected = [rows.tolist() for _ in range(3) for rows in batches_of(order.permutation(10), 4)]
    assert steps.batches == expected
    assert [len(batch) for batch in expected[:3]] == [4, 4, 2]
    assert steps.rates == [scheduled_rate(recipe(), step, 9) for step in range(9)]
    assert reported == [(step, 9) for step in range(1, 10)]
    assert [result.loss for result in results] == [1.0] * 3
    assert steps.calls == ["begin", "end"] * 3


@pytest.mark.parametrize(
    ("norms_train", "samples", "batches"), [(True, 9, [4, 4]), (False, 9, [4, 4, 1]), (True, 1, [1])]
)
def test_a_single_sample_is_left_out_where_norms_train_and_there_are_others(
    norms_train: bool, samples: int, batches: list[int]
) -> None:
    steps = Noted(norms_train=norms_train)
    assert EpochLoop(steps, recipe(1), samples, 0).epoch(0).loss == 1.0  # the mean over those that were trained on
    assert [len(batch) for batch in steps.batches] == batches


def test_the_mean_loss_weighs_batches_by_their_samples() -> None:
    steps = Noted({0: 2.0, 1: 4.0, 2: 10.0})
    assert EpochLoop(steps, recipe(1), 10, 0).epoch(0).loss == pytest.approx((4 * 2 + 4 * 4 + 2 * 10) / 10)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_training_with_the_way_out(loss: float) -> None:
    loop = EpochLoop(Noted({4: loss}), recipe(), 10, 0, loss_name="the exits' loss")
    loop.epoch(0)
    with pytest.raises(TrainingError, match=rf"the exits' loss became {loss} in epoch 2: lower .* which is 0\.5"):
        loop.epoch(1)


def test_a_stop_within_an_epoch_ends_it_there() -> None:
    steps = Noted({4: math.nan})
    results = list(EpochLoop(steps, recipe(), 10, 0).epochs(lambda step, _: step == 5))
    assert [result.stopped for result in results] == [False, True]
    assert len(steps.batches) == 5
    assert steps.calls == ["begin", "end"] * 2


def test_even_batches_differ_by_one_sample_at_most() -> None:
    rows = np.arange(10)
    assert [len(batch) for batch in even_batches_of(rows, 4)] == [4, 3, 3]
    assert np.array_equal(np.concatenate(even_batches_of(rows, 4)), rows)
    steps = Noted()
    EpochLoop(steps, recipe(1), 10, 0, batches=even_batches_of).epoch(0)
    assert [len(batch) for batch in steps.batches] == [4, 3, 3]


def trained(
    scores: list[float], patience: int, epochs: int = 6, stop: str = "", constant_until: float = 0.0
) -> tuple[Noted, TrainingLog, list[Any]]:
    steps, reports, remaining = Noted(), [], iter(scores)
    steps.constant_until = constant_until

    def report(progress: Mapping[str, Any]) -> bool:
        reports.append(progress)
        kind = "epoch" if "epoch" in progress else "step"
        return f"{kind} {int(progress[kind])}" == stop

    between = BetweenEpochs(lambda: next(remaining), lambda: 5)
    log = train_epochs(EpochLoop(steps, recipe(epochs, patience=patience), 8, 0), report, between, of=" of the exits")
    return steps, log, reports


@pytest.mark.parametrize(
    ("scores", "patience", "constant_until", "epochs"),
    [
        ([0.5, 0.7, 0.7, 0.6], 2, 0.0, 4),
        ([0.7, 0.6, 0.6, 0.6, 0.6, 0.6], 2, 0.5, 5),  # patience begins where the rate begins to fall
        ([0.5, 0.4, 0.6, 0.5, 0.5, 0.5], 3, 0.0, 6),  # a better score renews it, and the last epoch is never cut
        ([], 0, 0.0, 6),  # nothing is scored
    ],
)
def test_patience_ends_training_that_no_longer_improves(
    scores: list[float], patience: int, constant_until: float, epochs: int
) -> None:
    _, log, _ = trained(scores, patience, constant_until=constant_until)
    expected: list[float | None] = [*scores[:epochs]] or [None] * 6
    assert [entry.get("local_accuracy") for entry in log.entries] == expected
    ended = f"no better local score of the exits for {patience} epochs, after epoch {epochs}"
    assert log.ended == (ended if epochs < 6 else "")
    assert not log.requested


@pytest.mark.parametrize(
    ("stop", "ended", "entries"),
    [
        ("step 3", "stopped on request in epoch 2 of the exits", 1),
        ("epoch 2", "stopped on request after epoch 2 of the exits", 2),
        ("epoch 6", "", 6),
    ],
)
def test_a_stop_on_request_says_where(stop: str, ended: str, entries: int) -> None:
    _, log, _ = trained([], patience=0, stop=stop)
    assert (log.ended, len(log.entries), log.requested) == (ended, entries, bool(ended))


def test_what_trains_may_change_between_epochs_but_not_after_the_last() -> None:
    steps, log, reports = trained([], patience=0, epochs=3)
    assert steps.calls == ["begin", "end", "evolve 1 in 5", "begin", "end", "evolve 2 in 5", "begin", "end"]
    assert [entry.get("evolve_seconds") for entry in log.entries] == [100.0, 100.0, None]
    assert 200 <= log.seconds < 300
    assert next(report for report in reports if "epoch" in report)["epochs"] == 3
    assert [report["step"] for report in reports if "step" in report] == [1, 2, 3, 4, 5, 6]


def test_a_loop_that_continues_ends_as_one_that_was_never_cut() -> None:
    whole, written = Noted(), []

    def write(entries: Any, seconds: float) -> None:
        if len(entries) == 2:
            written.append((loop.state(), [*map(dict, entries)], seconds))

    loop = EpochLoop(whole, recipe(4), 8, 3)
    full = train_epochs(loop, lambda _: False, BetweenEpochs(float, write=write))
    ((state, entries, seconds),) = written
    rest = Noted()
    again = EpochLoop(rest, recipe(4), 8, 99)
    assert state is not None
    again.restore(state)
    log = train_epochs(again, lambda _: False, BetweenEpochs(float), TrainingLog(tuple(entries), seconds))
    assert rest.batches[4:] == whole.batches[4:]
    assert rest.rates == whole.rates[4:]
    assert [entry["epoch"] for entry in log.entries] == [entry["epoch"] for entry in full.entries] == [1, 2, 3, 4]


def test_steps_without_a_state_cannot_be_resumed() -> None:
    class Bare(Steps):
        def step(self, rows: RowNumbers, rate: float) -> float:  # noqa: ARG002 - a step's arguments
            return 0.0

    assert EpochLoop(Bare(), recipe(), 8, 0).state() is None
    assert Bare().evolve(1, None) == {}
    with pytest.raises(NotImplementedError):
        Bare().restore({})


def test_epochs_since_the_best_count_scored_epochs_only() -> None:
    entries: list[Entry] = [{"local_accuracy": 0.5}, {"loss": 1.0}, {"local_accuracy": 0.4}, {"local_accuracy": 0.4}]
    assert epochs_since_best(entries) == 2
    assert epochs_since_best(entries[1:2]) == 0


def test_a_cosine_falls_to_zero_and_a_constant_stays() -> None:
    rates = [scheduled_rate(recipe(), done, 4) for done in range(5)]
    assert rates[0] == 0.5
    assert rates[2] == pytest.approx(0.25)
    assert rates[4] == pytest.approx(0.0)
    assert {scheduled_rate(recipe(schedule="constant"), done, 4) for done in range(5)} == {0.5}
    assert [scheduled_rate(recipe(), done, 4, 0.5) for done in range(5)] == pytest.approx([0.5, 0.5, 0.5, 0.25, 0])


def test_a_warm_up_rises_over_the_first_epoch_and_stays_and_wsd_falls_over_the_last_fifth() -> None:
    warm = RecipePlan(epochs=10, learning_rate=1.0, schedule="warmup")
    rates = [scheduled_rate(warm, step, 100) for step in range(100)]
    assert rates[:11] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0])
    assert set(rates[10:]) == {1.0}
    assert scheduled_rate(replace(warm, epochs=20), 5, 200) == rates[5], "of more epochs it begins alike"
    falling = [scheduled_rate(replace(warm, schedule="wsd"), step, 100) for step in range(100)]
    assert falling[:81] == rates[:81]
    assert falling[90] == pytest.approx(0.5)
    assert falling[99] == pytest.approx(0.05)


RARE = np.array([0] * 90 + [1] * 8 + [2] * 2)


def test_mixed_in_samples_weigh_what_the_plan_says() -> None:
    weights = sample_weights(DataPlan(0.1, weight=4.0), local=2, mixed=3)
    assert weights is not None
    assert weights.tolist() == [1, 1, 4, 4, 4]
    assert sample_weights(DataPlan(0.1), local=2, mixed=3) is None, "all count alike"
    assert sample_weights(DataPlan(0.1, weight=4.0), local=2, mixed=0) is None


def test_balanced_epochs_hold_every_class_alike_in_every_batch() -> None:
    order = balanced_order(RARE)
    rows = order(np.random.default_rng(0))
    assert len(rows) == len(RARE)
    assert sorted(np.bincount(RARE[rows])) == [33, 33, 34]
    assert all(set(np.bincount(RARE[batch], minlength=3)) <= {2, 3, 4} for batch in rows[:90].reshape(-1, 10))
    generator = np.random.default_rng(0)  # each of a rare class takes part, over epochs each of a frequent one
    assert {98, 99, *range(90, 98)} <= set(order(generator).tolist())
    assert len({int(row) for _ in range(20) for row in order(generator)}) == len(RARE)


def test_without_balance_an_epoch_is_a_permutation() -> None:
    rows = epoch_order(DataPlan(), RARE)(np.random.default_rng(3))
    np.testing.assert_array_equal(rows, np.random.default_rng(3).permutation(len(RARE)))


def test_with_several_labels_the_rarest_counts() -> None:
    labels: Labels = np.zeros((10, 2), np.float32)
    labels[:8, 0] = 1
    labels[0, 1] = 1
    counts = np.bincount(balanced_order(labels)(np.random.default_rng(0)), minlength=10)
    assert counts[0] >= 3  # the only one with label 1
    assert counts[8:].sum() >= 3  # those without any
