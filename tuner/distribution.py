"""The name to install this package by, ``device-tuner``, and what installed packages offer to ``tuner``."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Name of the distribution. Another project owns the name ``tuner`` on the package index.
NAME = "device-tuner"
#: Group of entry points that plugins are found by.
PLUGINS = "tuner"
#: Environment variable that switches installed plugins off, as in ``TUNER_PLUGINS=-bias,-lora``.
SWITCH = "TUNER_PLUGINS"


def installed_version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version  # imports much that a process which only predicts does without

    return version(NAME)


def offered(group: str, *, switched_off: bool = False) -> "dict[str, EntryPoint]":
    """Return a group's entry points by name, without those in the package of a plugin that is switched off.

    Args:
        group: Of the entry points.
        switched_off: Return these alone.
    """
    from importlib.metadata import entry_points  # as above

    switched = {entry.strip().removeprefix("-") for entry in os.environ.get(SWITCH, "").split(",")}
    off = {_package(point) for point in entry_points(group=PLUGINS) if point.name in switched}
    return {point.name: point for point in entry_points(group=group) if (_package(point) in off) == switched_off}


def _package(point: "EntryPoint") -> str:
    return point.module.partition(".")[0]


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the package index and from a checkout."""
    return f'pip install "{NAME}[{extra}]", or in a checkout: pip install ".[{extra}]"'
