"""Measuring within a time: what there is no time for is derived."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest

from tests.sessions import opened
from tuner.backends.base import Session
from tuner.backends.torch import clock as clocks
from tuner.backends.torch.backend import TorchBackend
from tuner.backends.torch.clock import Clock
from tuner.plan.example import example_model
from tuner.planner.device import TRAIN_PASSES, nominal, rates_from
from tuner.task import Task


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
    assert (rates.forward_seconds[0], rates.train_seconds[1]) == (123.0, 456.0)
    assert not set(known) & set(figures)
    assert session.measure(1, within=0.0, known={**known, **figures}) == replace(rates, load_seconds=ANY)


def test_a_block_that_was_not_measured_costs_its_flops_at_the_pace_of_the_others() -> None:
    model = example_model(3)
    plain = nominal(model)
    rates = rates_from(model, {"forward 1": 5 * plain.forward_seconds[1], "train 0": 7.0})
    assert rates.forward_seconds == pytest.approx([5 * seconds for seconds in plain.forward_seconds])
    assert rates.train_seconds == pytest.approx([7.0, *(TRAIN_PASSES * one for one in rates.forward_seconds[1:])])
    assert not rates.complete


@pytest.mark.slow
def test_with_time_all_of_it_is_measured(session: Session) -> None:
    rates = session.measure(1)
    assert rates.complete
    assert rates.latency_seconds > 0


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
