"""The energy that a trial takes, in joules, as an objective: from the processor's own counters, or from the battery.

Source: Linux, ``Documentation/power/powercap/powercap.rst`` (RAPL: µJ, wrapping at a range) and
``Documentation/ABI/testing/sysfs-class-power`` (µWh, µAh, µV, µW); David et al., "RAPL: Memory power estimation and
capping" (ISLPED 2010).

What it cannot tell: both count all that runs on the device, not this process alone, so nothing else should run. RAPL
counts processor packages (memory on some), without screen and radio; since Linux 5.10 only the superuser may read it.
A battery counts the whole device, and only while it discharges; what it has left changes in steps that may take
minutes, so that a trial should take longer. What was filled ahead into the feature store is not part of a trial. The
part of a trial that an earlier process trained is taken to have cost as much an epoch as the rest.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tuner.plugin import Measure, MeasuredTrial, Objective, hookimpl

ENERGY = Objective("energy_joules", "minimise", "J")
SYSFS = Path("/sys/class")
#: Power is read, and a counter that may wrap, so often.
PERIOD_SECONDS = 1.0
JOULES_PER_MICRO_WATT_HOUR = 3600e-6
#: Takes the seconds since the last call; returns the joules of that time.
Source = Callable[[float], float]


class EnergyError(Exception):
    """The energy cannot be read now."""


def source(sysfs: Path) -> Source | None:
    """Return what reads energy on this device; None where nothing can be read.

    Args:
        sysfs: Folder of the system's device classes.
    """
    return _rapl(sysfs / "powercap") or _battery(sysfs / "power_supply")


def measuring(sysfs: Path) -> Measure:
    """Return a measure that adds up what a source reads, every second, from the beginning to the end of a trial.

    Args:
        sysfs: As for `source`.
    """

    def begin() -> Callable[[MeasuredTrial], float]:
        read, over = source(sysfs), threading.Event()
        if read is None:
            raise EnergyError(f"neither RAPL nor a battery can be read under {sysfs}")
        joules, errors = [read(0.0)], list[Exception]()

        def add() -> None:
            last, ended = time.monotonic(), False
            while not ended and not errors:
                ended = over.wait(PERIOD_SECONDS)
                now = time.monotonic()
                try:
                    joules.append(read(now - last))
                except (EnergyError, OSError, ValueError) as error:
                    errors.append(error)
                last = now

        thread = threading.Thread(target=add, daemon=True)
        thread.start()

        def end(trial: MeasuredTrial) -> float:
            over.set()
            thread.join()
            if errors:
                raise errors[0]
            epochs = len(trial.outcome.epochs)
            seen = epochs - trial.continued
            return sum(joules) * (epochs / seen if seen else 1.0)

        return end

    return begin


def _rapl(folder: Path) -> Source | None:
    """Return what reads the energy counters of all processor packages, which wrap."""
    zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if re.fullmatch(r"intel-rapl:\d+", zone.name)]
    packages = [zone for zone in zones if _text(zone / "name").startswith("package")]
    before = {zone: joules for zone in packages if (joules := _number(zone / "energy_uj", 1e-6)) is not None}
    if not before:
        return None

    def read(seconds: float) -> float:  # noqa: ARG001 - it counts energy itself
        total = 0.0
        for zone, last in before.items():
            before[zone] = _value(zone / "energy_uj", 1e-6)
            wrapped = before[zone] < last
            total += before[zone] - last + (_value(zone / "max_energy_range_uj", 1e-6) if wrapped else 0.0)
        return total

    return read


def _battery(folder: Path) -> Source | None:
    """Return what reads the first battery: its power where it tells, else the energy or the charge that it has left."""
    for battery in sorted(folder.glob("*")):
        if (
            _text(battery / "type") == "Battery" and _text(battery / "scope") != "Device"
        ):  # that of a mouse is another's
            if _number(battery / "power_now", 1e-6) is not None:
                return _power(battery)
            if _left(battery) is not None:
                return _discharge(battery)
    return None


def _power(battery: Path) -> Source:
    """Return what reads a battery's power, and takes it for that of all the seconds."""

    def read(seconds: float) -> float:
        _require_discharging(battery)
        return abs(_value(battery / "power_now", 1e-6)) * seconds  # some drivers count what is drawn as negative

    return read


def _discharge(battery: Path) -> Source:
    """Return what reads the energy that a battery has lost."""
    last = _left(battery)

    def read(seconds: float) -> float:  # noqa: ARG001 - it counts energy itself
        nonlocal last
        _require_discharging(battery)
        before, last = last, _left(battery)
        if before is None or last is None:
            raise EnergyError(f"{battery} can no longer be read")
        return before - last

    return read


def _left(battery: Path) -> float | None:
    """Return the joules that a battery has left."""
    energy = _number(battery / "energy_now", JOULES_PER_MICRO_WATT_HOUR)
    if energy is not None:
        return energy
    charge, volts = _number(battery / "charge_now", JOULES_PER_MICRO_WATT_HOUR), _number(battery / "voltage_now", 1e-6)
    return None if charge is None or volts is None else charge * volts


def _require_discharging(battery: Path) -> None:
    """Refuse to measure while a charger gives the energy.

    Raises:
        EnergyError: It does.
    """
    status = _text(battery / "status")
    if status != "Discharging":
        raise EnergyError(f"a battery's energy counts while it discharges, but {battery.name} is {status!r}: unplug it")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path, scale: float) -> float | None:
    try:
        return _value(path, scale)
    except (OSError, ValueError):
        return None


def _value(path: Path, scale: float) -> float:
    return float(path.read_text(encoding="ascii")) * scale


@hookimpl
def tuner_objectives() -> Iterable[Objective]:
    """Offer the objective where the device can measure it."""
    return [ENERGY] if source(SYSFS) is not None else []


@hookimpl
def tuner_measures() -> Mapping[str, Measure]:
    """Offer the measure where the device can take it, for every backend."""
    return {ENERGY.name: measuring(SYSFS)} if source(SYSFS) is not None else {}
