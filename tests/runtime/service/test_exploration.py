"""How much is explored on a device that is busy or on battery."""

from dataclasses import replace

import pytest

from tests.runtime.service.lived import ALWAYS, Make
from tuner.runtime import Policy
from tuner.runtime.service.conditions import Readings
from tuner.runtime.service.orchestrator import READ_SECONDS, Exploration, spare
from tuner.runtime.service.watch.monitor import Watch


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"load": None, "charging": None}, 1.0),
        ({"load": 0.25}, 0.75),
        ({"load": 1.5}, 0.0),
        ({"load": 0.25, "battery": 0.4}, 0.75),  # it is charging
        ({"load": 0.25, "battery": 0.4, "charging": False}, 0.3),
        ({"load": 0.0, "charging": False}, 1.0),  # a battery that does not say how full it is
    ],
)
def test_a_busy_device_or_one_on_battery_explores_less(change: dict[str, float | None], part: float) -> None:
    assert spare(replace(ALWAYS, **change)) == pytest.approx(part)  # type: ignore[arg-type]  # some fields a case


def test_the_device_is_read_seldom_and_rate_and_step_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, loads = [0.0], [0.0, 0.6, 1.0]
    monkeypatch.setattr("tuner.runtime.service.orchestrator.time.monotonic", lambda: seconds[0])
    exploration = Exploration(Watch(exploration=0.5, step=0.1), lambda: replace(ALWAYS, load=loads.pop(0)))
    for second, share in ((0.0, 1.0), (READ_SECONDS - 1, 1.0), (READ_SECONDS, 0.4), (2 * READ_SECONDS, 0.0)):
        seconds[0] = second
        settings = exploration.settings()
        assert (settings.exploration, settings.step) == pytest.approx((0.5 * share, 0.1 * share))
    assert not loads


@pytest.mark.parametrize(
    ("readings", "least", "most", "threshold"),
    [(ALWAYS, 160, 160, 0.65), (replace(ALWAYS, load=0.5), 60, 100, 0.625), (replace(ALWAYS, load=1.0), 0, 0, 0.6)],
)
def test_a_service_explores_what_the_device_can_do(
    readings: Readings, least: int, most: int, threshold: float, make: Make, pointing: Make, sample: Make, serve: Make
) -> None:
    # exit 0 mixes the second and third label up, which it says with confidence; the stream begins with the first alone
    bundle = make("old", [pointing(3.0, (0, 2, 1)), pointing(3.0)], [0.6])
    policy = Policy(watch=Watch(exploration=1.0, enough=10**6, least=30))
    with serve(bundle, policy=policy, readings=readings) as service:
        for number in range(160):
            service.infer(sample(int(number >= 100), number))
        assert least <= service.state.explored <= most
        assert service.model.thresholds == (threshold,)
