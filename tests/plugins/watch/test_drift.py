"""What asks for a round and when it may start: Page–Hinkley as river 0.26.1 has it, and the device's conditions."""

import random
from dataclasses import replace

import pytest

from tuner.errors import TunerError
from tuner_watch.conditions import ANY_TIME, Conditions, Readings, read_device, read_window, unmet
from tuner_watch.drift import PageHinkley

#: (least, delta, limit, forgetting): where river's PageHinkley(mode="up") alarms, and its statistic at the end.
RIVER = [
    ((30, 0.005, 5.0, 0.9999), [278, 421, 687, 859], 1.0001461883956255),
    ((30, 0.05, 5.0, 0.9999), [447, 882], 0.20293972241783464),
    ((10, 0.005, 10.0, 0.99), [456, 887], 1.0758382753627327),
    ((50, 0.0, 3.0, 1.0), [49, 236, 314, 405, 479, 638, 734, 818], 2.512191560245618),
]


def rising() -> list[float]:
    draw = random.Random(12345)
    begin = [draw.random() for _ in range(400)]
    middle = [0.3 + 0.7 * draw.random() for _ in range(400)]
    return begin + middle + [0.6 + 0.4 * draw.random() for _ in range(400)]


@pytest.mark.parametrize(("settings", "alarms", "statistic"), RIVER)
def test_alarms_come_where_rivers_do(
    settings: tuple[int, float, float, float], alarms: list[int], statistic: float
) -> None:
    least, delta, limit, forgetting = settings
    test = PageHinkley(delta, limit, least, forgetting)
    indices = []
    for index, value in enumerate(rising()):
        test = test.after(value)
        if test.alarms:
            indices.append(index)
    assert indices == alarms
    assert test.statistic == pytest.approx(statistic, rel=1e-9)


def test_a_mean_that_falls_or_stays_raises_no_alarm() -> None:
    draw = random.Random(1)
    test = PageHinkley()
    for index in range(5000):
        test = test.after(draw.random() * (0.6 if index < 1000 else 0.3))
        assert not test.alarms


def test_nothing_alarms_before_the_least_number_of_values() -> None:
    tests = [PageHinkley(limit=0.1, least=30)]
    for index in range(30):
        tests.append(tests[-1].after(index / 30))
    assert [test.alarms for test in tests[1:]] == [False] * 29 + [True]
    assert PageHinkley().statistic == 0


IDLE = Readings(load=0.1, charging=True, celsius=40.0, minute=120)
NIGHT = Conditions(window=(60, 330), full=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"load": 0.9}, "busy"),
        ({"charging": False}, "not charging"),
        ({"charging": None}, None),
        ({"battery": 0.9}, "the battery is at 90 %, a round starts at 95 % or more"),
        ({"battery": 0.97}, None),
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
    minutes = (0, 359, 360, 1349, 1350)
    assert [minute for minute in minutes if unmet(late, replace(IDLE, minute=minute)) is None] == [0, 359, 1350]


@pytest.mark.parametrize("text", ["", "01:00", "25:00-26:00", "01:00-01:00", "01:75-02:00", "night"])
def test_an_invalid_window_is_reported(text: str) -> None:
    with pytest.raises(TunerError, match=r"--window must be two times of the day such as 01:00-05:30"):
        read_window(text)


def test_this_device_is_read() -> None:
    readings = read_device()
    assert 0 <= readings.minute < 24 * 60
    assert unmet(ANY_TIME, readings) is None
