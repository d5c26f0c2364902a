"""What kind of device this is."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from tuner.machine.control_group import memory_limit, usable_processors
from tuner.results.kinds import Device

#: Libraries whose version changes what training takes.
LIBRARIES = ("onnxruntime", "torch")
PROCESSORS = Path("/proc/cpuinfo")
#: Lines of `PROCESSORS` that name the processor, by architecture.
NAMES = ("model name", "Model", "Hardware")


def this_device() -> Device:
    """Return this device, as far as it decides what training takes: the limits of its control group included."""
    total = psutil.virtual_memory().total
    nbytes = min(total, memory_limit() or total)
    versions = {name: found for name in LIBRARIES if (found := _version(name))}
    return Device(_processor(), platform.machine(), usable_processors(), round(nbytes / 2**30), versions)


def _processor() -> str:
    lines = [line.partition(":") for line in _read(PROCESSORS).splitlines()]
    found = {name.strip(): value.strip() for name, _, value in lines}
    return next((found[name] for name in NAMES if found.get(name)), platform.machine())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return ""
