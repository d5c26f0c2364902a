"""Measuring within a time: what there is no time for is derived."""

import pytest

from tuner.backends.torch import measure as measuring
from tuner.backends.torch.measure import Clock, measure
from tuner.backends.torch.model.load import OpenModel
from tuner.planner.device import TRAIN_PASSES
from tuner.task import Task


@pytest.mark.slow
def test_without_time_every_block_runs_forward_and_the_rest_is_derived(task: Task, loaded: OpenModel) -> None:
    rates = measure(task, loaded, 1, within=0.0)
    assert not rates.complete
    assert len(rates.forward_seconds) == loaded.info.num_blocks
    assert min(rates.forward_seconds) > 0
    assert rates.train_seconds == tuple(TRAIN_PASSES * seconds for seconds in rates.forward_seconds)
    assert rates.prefix_kind == "torch-fp32"
    assert rates.latency_seconds == 0.0


@pytest.mark.slow
def test_with_time_all_of_it_is_measured(task: Task, loaded: OpenModel) -> None:
    rates = measure(task, loaded, 1)
    assert rates.complete
    assert rates.latency_seconds > 0


def test_a_busy_device_has_time_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [(0.0, 0.0)]
    monkeypatch.setattr(measuring, "_now", lambda: now[0])
    clock = Clock(within=10.0, threads=1)
    assert clock.has(9.0)
    assert not clock.has(10.0)
    now[0] = (4.0, 4.0)  # alone: a second of the clock is one of the processor
    assert clock.has(5.0)
    now[0] = (4.0, 1.0)  # three others take their turns: all takes four times as long
    assert not clock.has(2.0)
    assert clock.has(1.0)
