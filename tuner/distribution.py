"""The name to install this package by, ``device-tuner``, and what installed packages offer to ``tuner``."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints, SelectableGroups

#: Name of the distribution. Another project owns the name ``tuner`` on the package index.
NAME = "device-tuner"
#: Group of entry points that plugins are found by.
PLUGINS = "tuner"
#: Group of the entry points of a plugin that chooses a task's model from candidates.
CANDIDATES = "tuner.candidates"
#: Environment variable that switches installed plugins off, as in ``TUNER_PLUGINS=-bias,-lora``.
SWITCH = "TUNER_PLUGINS"
#: Environment variable that lets models be fetched which a task names, and what it may say; ``--fetch`` sets it for one
#: command.
FETCH, YES = "TUNER_FETCH", frozenset({"1", "true", "yes", "on"})


@contextmanager
def fetching(*, asked: bool) -> Iterator[None]:
    """Let models be fetched during a block, also by processes that begin in it; elsewhere the environment decides."""
    before = {FETCH: os.environ[FETCH]} if FETCH in os.environ else {}
    os.environ |= {FETCH: "1"} if asked else {}
    try:
        yield
    finally:
        if asked:
            os.environ.pop(FETCH, None)
            os.environ |= before


def may_fetch() -> bool:
    """Return whether models may be fetched."""
    return os.environ.get(FETCH, "").strip().lower() in YES


def installed_version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version  # imports much that a process which only predicts does without

    return version(NAME)


def entry_points(group: str) -> "EntryPoints":
    """Return a group's entry points; packages are read once, and again where some were installed since."""
    return _read(*((place, os.path.getmtime(place)) for place in filter(os.path.exists, sys.path))).select(group=group)  # noqa: PTH204 - a path object for each takes longer


@lru_cache(maxsize=1)
def _read(*_places: object) -> "SelectableGroups":
    from importlib.metadata import entry_points  # as above

    return entry_points()


def offered(group: str) -> "dict[str, EntryPoint]":
    """Return a group's entry points by name, without those in the package of a plugin that is switched off."""
    off = _packages_off()
    return {point.name: point for point in entry_points(group) if _package(point) not in off}


def switched_off(group: str, name: str) -> str | None:
    """Return the plugin that an entry point of a group is of, where it is switched off."""
    off = _packages_off()
    packages = [_package(point) for point in entry_points(group) if point.name == name]
    return next((off[package] for package in packages if package in off), None)


def _packages_off() -> dict[str, str]:
    """Return the plugins that are switched off, by their package."""
    off = {entry.strip().removeprefix("-") for entry in os.environ.get(SWITCH, "").split(",")}
    return {_package(one): one.name for one in entry_points(PLUGINS) if one.name in off} if any(off) else {}


def _package(point: "EntryPoint") -> str:
    return point.module.partition(".")[0]


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the package index and from a checkout."""
    return f'pip install "{NAME}[{extra}]", or in a checkout: pip install ".[{extra}]"'
