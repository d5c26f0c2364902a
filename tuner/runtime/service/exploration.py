"""How much a watched bundle explores: as much as the device can do besides its predictions."""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.runtime.service.conditions import Readings
from tuner.runtime.service.monitor import Watch

#: Least time between two readings of the device: its load is a mean of a minute.
READ_SECONDS = 30.0


def spare(readings: Readings) -> float:
    """Return the share of exploration that the device can do, in [0, 1].

    It is the part of the processors that is idle; on battery, that times the battery's charge. A missing reading takes
    nothing away.
    """
    idle = 1.0 if readings.load is None else max(0.0, 1.0 - readings.load)
    charge = 1.0 if readings.charging is not False or readings.battery is None else readings.battery
    return idle * charge


class Exploration:
    """The settings of a watch, as the device allows them at the moment.

    Source: PersEPhonEE (HotMobile 2021), section 3.4: the rate of exploration and the step of a threshold follow load
    and battery. A threshold that rises costs work too: more samples reach the next exit.

    Args:
        watch: Settings on an idle device with mains power.
        readings: Function that reads the device's state.
    """

    def __init__(self, watch: Watch, readings: Callable[[], Readings]) -> None:
        self._watch, self._readings = watch, readings
        self._read, self._current = -math.inf, watch

    def settings(self) -> Watch:
        """Return the current settings."""
        if time.monotonic() - self._read >= READ_SECONDS:
            share, watch = spare(self._readings()), self._watch
            self._read = time.monotonic()
            self._current = replace(watch, exploration=watch.exploration * share, step=watch.step * share)
        return self._current
