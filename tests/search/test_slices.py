"""The first slice of the samples, on devices that are as fast as they were measured, and on slower ones."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN
from tuner.plan.trial import TrialPlan
from tuner.search.fill.filling import Filler
from tuner.search.rungs import LEAST_SLICE, at_rung, prepare_slice

WITHIN = 10.0
LARGE = replace(PLAN, task=replace(PLAN.task, local_train=4096, local_val=512))


class Device:
    """A device that takes the same time for every sample, what was computed before included."""

    def __init__(self, seconds_each: float) -> None:
        self.seconds_each, self.seconds = seconds_each, 0.0
        self.passes: list[tuple[int, float]] = []

    def prepare(self, plans: Iterable[TrialPlan], within: float) -> bool:
        samples = next(iter(plans)).read_samples
        needed = samples * self.seconds_each
        self.seconds += min(needed, within)
        self.passes.append((samples, within))
        return needed <= within

    def fits(self, plan: TrialPlan, within: float) -> bool:
        return plan.read_samples * self.seconds_each <= within


def began(plan: TrialPlan, rung: int, device: Device) -> int:
    return prepare_slice(cast("Filler", device), [plan], rung, WITHIN)


def test_a_device_as_fast_as_measured_begins_where_it_was_to() -> None:
    device = Device(0.99 * WITHIN / at_rung(LARGE, 2).read_samples)
    assert began(LARGE, 2, device) == 2
    assert len(device.passes) == 1


@pytest.mark.parametrize("slower", [2.5, 5.0, 11.0])
def test_a_slower_device_begins_with_the_largest_slice_that_it_has_time_for(slower: float) -> None:
    device = Device(slower * WITHIN / at_rung(LARGE, 2).read_samples)
    rung = began(LARGE, 2, device)
    assert len(device.passes) == 2  # what the first one showed is enough
    assert device.seconds <= 2 * WITHIN
    assert at_rung(LARGE, rung).read_samples * device.seconds_each <= WITHIN
    assert at_rung(LARGE, rung - 1).read_samples * device.seconds_each > WITHIN


def test_no_slice_is_too_small_to_tell_plans_apart_however_slow_the_device_is() -> None:
    device = Device(1000 * WITHIN)
    rung = began(LARGE, 2, device)
    assert LEAST_SLICE <= at_rung(LARGE, rung).local_samples < 2 * LEAST_SLICE
    assert [within for _, within in device.passes] == [WITHIN, math.inf]


def test_the_top_rung_and_small_tasks_take_what_they_take() -> None:
    device: Any = Device(1000 * WITHIN)
    assert began(LARGE, 0, device) == 0
    few = replace(PLAN, task=replace(PLAN.task, local_train=LEAST_SLICE))
    assert began(few, 1, device) == 1
    assert [within for _, within in device.passes] == [math.inf, math.inf]
