"""Page–Hinkley against what river 0.26.1 gives for the same streams, and on streams that do not change."""

import random

import pytest

from tuner.runtime.service.watch.drift import PageHinkley

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
    test = PageHinkley(limit=0.1, least=30)
    alarms = []
    for index in range(30):
        test = test.after(index / 30)
        alarms.append(test.alarms)
    assert alarms == [False] * 29 + [True]
    assert PageHinkley().statistic == 0
