"""When a round may start: the device idle, charging, cool, and the hour right."""

import os
import re
import time
from dataclasses import dataclass

import psutil

from tuner.errors import TunerError

MINUTES_A_DAY = 24 * 60
WINDOW = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class Readings:
    """What the operating system tells; None where it does not.

    Attributes:
        load: Of the last minute, in runnable processes a processor.
        charging: Whether the device is on mains power; None without a battery.
        celsius: Of the hottest sensor.
        minute: Of the day, local time, from 0.
    """

    load: float | None
    charging: bool | None
    celsius: float | None
    minute: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a round waits for; what the operating system does not tell is not waited for.

    Attributes:
        load: Upper bound of `Readings.load`; None for none.
        charging: Whether a device with a battery has to be charging.
        celsius: Upper bound of the hottest sensor; None for none.
        window: Minutes of the day [begin, end), over midnight where end is before begin; None for all day.
    """

    load: float | None = 0.5
    charging: bool = True
    celsius: float | None = 70.0
    window: tuple[int, int] | None = None


ANY_TIME = Conditions(load=None, charging=False, celsius=None)


def read_device() -> Readings:
    """Ask the operating system."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    degrees = [one.current for several in sensors.values() for one in several if one.current is not None]
    now = time.localtime()
    return Readings(
        load=os.getloadavg()[0] / (os.cpu_count() or 1),
        charging=None if battery is None else bool(battery.power_plugged),
        celsius=max(degrees, default=None),
        minute=60 * now.tm_hour + now.tm_min,
    )


def unmet(wanted: Conditions, readings: Readings) -> str | None:
    """Return the first condition that does not hold, in words, or None when a round may start."""
    if wanted.window is not None and not _inside(readings.minute, wanted.window):
        return f"the hour is not within {said_window(wanted.window)}"
    if wanted.charging and readings.charging is False:
        return "the device is not charging"
    if wanted.celsius is not None and readings.celsius is not None and readings.celsius > wanted.celsius:
        return f"the device is warm: {readings.celsius:.0f} °C, and {wanted.celsius:.0f} °C at most is wanted"
    if wanted.load is not None and readings.load is not None and readings.load > wanted.load:
        return f"the device is busy: load {readings.load:.2f} a processor, and {wanted.load:.2f} at most is wanted"
    return None


def read_window(text: str) -> tuple[int, int]:
    """Read ``"01:00-05:30"`` as minutes of the day.

    Raises:
        TunerError: It is not two times of the day.
    """
    found = WINDOW.fullmatch(text.strip())
    times = [60 * int(found[one]) + int(found[one + 1]) for one in (1, 3) if int(found[one + 1]) < 60] if found else []  # noqa: PLR2004 - minutes
    if len(times) != 2 or max(times) > MINUTES_A_DAY or times[0] == times[1]:  # noqa: PLR2004 - begin and end
        raise TunerError(f"--window wants two times of the day such as 01:00-05:30, but it is {text!r}")
    return times[0], times[1]


def said_window(window: tuple[int, int]) -> str:
    """Return the window as people write it."""
    return "-".join(f"{one // 60:02d}:{one % 60:02d}" for one in window)


def _inside(minute: int, window: tuple[int, int]) -> bool:
    begin, end = window
    return begin <= minute < end if begin < end else minute >= begin or minute < end
