"""Conditions under which a round of training may start: the device idle, charging and cool, within some hours."""

import os
import re
import time
from dataclasses import dataclass

import psutil

from tuner.errors import UsageError

MINUTES_A_DAY = 24 * 60
#: Charge of a battery that counts as full: some stop a little short of 100 %.
FULL = 0.95
WINDOW = re.compile(r"(\d{1,2}):([0-5]\d)-(\d{1,2}):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Readings:
    """State of the device; None for what the operating system does not report.

    Attributes:
        load: Runnable processes a processor, over the last minute.
        charging: Whether the device is on mains power; None without a battery.
        celsius: Temperature of the hottest sensor.
        minute: Minute of the day, local time, from 0.
        battery: Charge of the battery, in [0, 1].
    """

    load: float | None
    charging: bool | None
    celsius: float | None
    minute: int
    battery: float | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a round waits for; a condition whose reading is missing holds.

    Attributes:
        load: Upper bound of `Readings.load`; None for none.
        charging: Whether a device with a battery must be charging.
        celsius: Upper bound of the hottest sensor; None for none.
        window: Minutes of the day [begin, end), over midnight where end is before begin; None for all day.
        full: Whether a battery must be full, so that training takes nothing from its charging (PersEPhonEE, 3.4).
    """

    load: float | None = 0.5
    charging: bool = True
    celsius: float | None = 70.0
    window: tuple[int, int] | None = None
    full: bool = False


ANY_TIME = Conditions(load=None, charging=False, celsius=None)


def read_device() -> Readings:
    """Read the device's state from the operating system."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    degrees = [sensor.current for group in sensors.values() for sensor in group if sensor.current is not None]
    now = time.localtime()
    return Readings(
        load=psutil.getloadavg()[0] / (os.cpu_count() or 1),
        charging=None if battery is None else bool(battery.power_plugged),
        celsius=max(degrees, default=None),
        minute=60 * now.tm_hour + now.tm_min,
        battery=None if battery is None else min(1.0, max(0.0, battery.percent / 100)),
    )


def unmet(conditions: Conditions, readings: Readings) -> str | None:
    """Return the first condition that does not hold, in words, or None when a round may start."""
    if conditions.window is not None and not _inside(readings.minute, conditions.window):
        hours = "-".join(f"{minute // 60:02d}:{minute % 60:02d}" for minute in conditions.window)
        return f"the hour is not within {hours}"
    if conditions.charging and readings.charging is False:
        return "the device is not charging"
    if conditions.full and readings.battery is not None and readings.battery < FULL:
        return f"the battery is at {100 * readings.battery:.0f} %, a round starts at {100 * FULL:.0f} % or more"
    hottest, celsius = readings.celsius, conditions.celsius
    if celsius is not None and hottest is not None and hottest > celsius:
        return f"the device is warm: {hottest:.0f} °C, a round starts at {celsius:.0f} °C or less"
    if conditions.load is not None and readings.load is not None and readings.load > conditions.load:
        return (
            f"the device is busy: load {readings.load:.2f} per processor, "
            f"a round starts at {conditions.load:.2f} or less"
        )
    return None


def read_window(text: str) -> tuple[int, int]:
    """Read ``"01:00-05:30"`` as minutes of the day; a `UsageError` where it is not two times of the day."""
    match = WINDOW.fullmatch(text.strip())
    if match:
        begin_hour, begin_minute, end_hour, end_minute = map(int, match.groups())
        begin, end = 60 * begin_hour + begin_minute, 60 * end_hour + end_minute
        if begin != end and max(begin, end) <= MINUTES_A_DAY:
            return begin, end
    raise UsageError(f"--window must be two times of the day such as 01:00-05:30, got {text!r}")


def _inside(minute: int, window: tuple[int, int]) -> bool:
    begin, end = window
    return begin <= minute < end if begin < end else minute >= begin or minute < end
