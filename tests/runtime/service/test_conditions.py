"""When a round may start."""

from dataclasses import replace

import pytest

from tuner.errors import TunerError
from tuner.runtime.service.conditions import ANY_TIME, Conditions, Readings, read_device, read_window, unmet

IDLE = Readings(load=0.1, charging=True, celsius=40.0, minute=120)
NIGHT = Conditions(window=(60, 330))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"load": 0.9}, "busy"),
        ({"charging": False}, "not charging"),
        ({"charging": None}, None),
        ({"celsius": 85.0}, "warm"),
        ({"celsius": None, "load": None}, None),
        ({"minute": 59}, "01:00-05:30"),
        ({"minute": 60}, None),
        ({"minute": 330}, "01:00-05:30"),
    ],
)
def test_what_a_round_waits_for(change: dict[str, float | None], says: str | None) -> None:
    reason = unmet(NIGHT, replace(IDLE, **change))  # type: ignore[arg-type]  # one field a case
    assert reason is None if says is None else reason is not None and says in reason


def test_a_window_may_span_midnight() -> None:
    late = Conditions(window=read_window("22:30-06:00"))
    assert [unmet(late, replace(IDLE, minute=minute)) is None for minute in (0, 359, 360, 1349, 1350)] == [
        True,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("text", ["", "01:00", "25:00-26:00", "01:00-01:00", "01:75-02:00", "night"])
def test_an_invalid_window_is_reported(text: str) -> None:
    with pytest.raises(TunerError, match=r"--window must be two times of the day such as 01:00-05:30"):
        read_window(text)


def test_this_device_is_read() -> None:
    readings = read_device()
    assert 0 <= readings.minute < 24 * 60
    assert unmet(ANY_TIME, readings) is None
