"""What is measured of a device: rates within a time, first steps, and the fastest number of threads."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tests.sessions import opened
from tuner.backends.base import Session, Trial
from tuner.backends.torch import clock as clocks
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.clock import Clock
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.session import first_steps
from tuner.backends.torch.threads import CHANGED, EARLIEST, LATEST, TRIED, WINDOW, ThreadChoice
from tuner.plan.example import example_model
from tuner.plan.parts import RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan
from tuner.planner.device import TRAIN_PASSES, nominal, rates_from
from tuner.planner.price import price
from tuner.plugin.core import build_host
from tuner.search.estimate.rates import rates_of
from tuner.search.processes.remote import open_remote
from tuner.store.store import Store
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.info import task_info


@pytest.fixture
def session(task: Task) -> Session:
    return opened(TorchBackend(), task)


@pytest.mark.slow
def test_without_time_blocks_cost_their_flops(session: Session) -> None:
    rates = session.measure(1, within=0.0)
    assert not rates.complete
    assert rates.forward_seconds == nominal(session.model).forward_seconds
    assert rates.prefix_kind == "torch-fp32"
    assert rates.latency_seconds == 0.0


@pytest.mark.slow
def test_what_was_reported_before_is_not_measured_again(session: Session) -> None:
    figures: dict[str, Any] = {}

    def note(progress: Mapping[str, Any]) -> bool:
        figures[progress["figure"]] = progress["value"]
        return False

    known = {"forward 0": 123.0, "train 1": 456.0}
    rates = session.measure(1, known=known, report=note)
    assert rates.complete
    assert rates.latency_seconds > 0
    assert (rates.forward_seconds[0], rates.train_seconds[1]) == (123.0, 456.0)
    assert not set(known) & set(figures)
    everything = {**known, **figures}
    assert session.measure(1, within=0.0, known=everything) == replace(rates, load_seconds=ANY)
    del everything["latency"]
    figures.clear()
    assert session.measure(1, known=everything, report=note).latency_seconds == figures["latency"]  # of a later run
    assert figures.keys() == {"load", "latency"}


def test_a_block_that_was_not_measured_costs_its_flops_at_the_pace_of_the_others() -> None:
    model = example_model(3)
    plain = nominal(model)
    rates = rates_from(model, {"forward 1": 5 * plain.forward_seconds[1], "train 0": 7.0})
    assert rates.forward_seconds == pytest.approx([5 * seconds for seconds in plain.forward_seconds])
    assert rates.train_seconds == pytest.approx([7.0, *(TRAIN_PASSES * one for one in rates.forward_seconds[1:])])
    assert not rates.complete


def test_a_busy_device_has_time_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [(0.0, 0.0)]
    monkeypatch.setattr(clocks, "_now", lambda: now[0])
    clock = Clock(within=10.0, threads=1)
    assert clock.has(9.0)
    assert not clock.has(10.0)
    now[0] = (4.0, 4.0)  # alone: a second of the clock is one of the processor
    assert clock.has(5.0)
    now[0] = (4.0, 1.0)  # three others take their turns: all takes four times as long
    assert not clock.has(2.0)
    assert clock.has(1.0)


def test_each_cut_has_a_figure_and_no_weight_moves(task: Task, loaded: OpenModel) -> None:
    weights = state_hash(loaded.model)
    first = first_steps(task, loaded, 1)
    for values in (first.library_bytes, first.seconds):
        assert len(values) == loaded.info.num_blocks
        assert min(values) >= 0
    assert first.seconds == tuple(sorted(first.seconds, reverse=True))
    assert state_hash(loaded.model) == weights


@pytest.mark.slow
def test_before_any_trial_the_whole_model_is_expected_within_half_of_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    task = digits()
    with open_remote(build_host(), "digits", ["torch"], many_jobs=True) as sessions:
        session = sessions["torch"]
        rates = rates_of(session, "torch", measure=True)
        plan = TrialPlan(session.model, task_info(task), recipe=RecipePlan(epochs=1), runtime=RuntimePlan("torch"))
        outcome = session.train(Trial(plan, 0, Store(tmp_path / "store"), tmp_path / "weights"))
    measured = outcome.values["peak_bytes"]
    assert measured / 1.5 < price(plan, rates).peak_bytes < 1.5 * measured


class Device:
    """A clock that moves with every step, by what the number of threads costs."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost, self.now, self.threads = cost, 0.0, 0
        self.used: Counter[int] = Counter()

    def clock(self) -> float:
        return self.now

    def use(self, threads: int) -> None:
        self.threads = threads

    def run(self, choice: ThreadChoice, steps: int) -> None:
        for _ in range(steps):
            with choice:
                self.used[self.threads] += 1
                self.now += self.cost(self.threads)


def chosen(device: Device, most: int) -> ThreadChoice:
    return ThreadChoice(most, device.clock, device.use)


@pytest.mark.parametrize(("cost", "expected"), [(lambda n: 1 / n, 4), (float, 1), (lambda n: abs(n - 2) + 1.0, 2)])
def test_the_fastest_number_is_used(cost: Callable[[int], float], expected: int) -> None:
    device = Device(cost)
    choice = chosen(device, 4)
    device.run(choice, 100)
    assert choice.threads == expected
    tried = {count: number for count, number in device.used.items() if count != expected}
    assert all(number == TRIED for number in tried.values())
    assert set(device.used) == {1, 2, 4}


@pytest.mark.parametrize(("most", "counts"), [(1, set()), (2, {1, 2}), (3, {1, 2, 3}), (8, {1, 2, 4, 8})])
def test_powers_of_two_are_tried_and_all(most: int, counts: set[int]) -> None:
    device = Device(lambda _: 1.0)
    device.run(chosen(device, most), 4 * TRIED)
    assert set(device.used) - {0} == counts


@pytest.mark.parametrize(("before", "after", "steps"), [(0.5, 10.0, EARLIEST + WINDOW), (2.0, 0.5, LATEST)])
def test_it_is_measured_again_where_the_load_seems_to_change_and_after_a_while(
    before: float, after: float, steps: int
) -> None:
    """Two threads take so many times what one takes; that they became faster shows only when they are tried."""
    two = before
    device = Device(lambda threads: two if threads == 2 else 1.0)
    choice = chosen(device, 2)
    device.run(choice, 2 * TRIED + WINDOW)
    assert choice.threads == (2 if before < 1 else 1)
    two = after
    device.run(choice, steps + 2 * TRIED)
    assert choice.threads == (2 if after < 1 else 1)
    assert CHANGED > 1
