"""The name to install this package by, ``device-tuner``, and what installed packages offer to ``tuner``."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Name of the distribution. Another project owns the name ``tuner`` on the package index.
NAME = "device-tuner"
#: Group of entry points that plugins are found by.
PLUGINS = "tuner"
#: Group of the entry points of a plugin that chooses a task's model from candidates.
CANDIDATES = "tuner.candidates"
#: Group of the entry points of what writes training steps; their names are those of the files' formats.
WRITERS = "tuner.step_writers"
#: Group of the entry points of a plugin that realises what other plugins solve for from sums.
SOLVED_HEADS = "tuner.solved_heads"
#: Environment variable that switches installed plugins off, as in ``TUNER_PLUGINS=-bias,-lora``.
SWITCH = "TUNER_PLUGINS"
#: Environment variable that lets models be fetched which a task names, and what it may say; ``--fetch`` sets it for one
#: command.
FETCH, YES = "TUNER_FETCH", frozenset({"1", "true", "yes", "on"})


@contextmanager
def fetching(*, asked: bool) -> Iterator[None]:
    """Let models be fetched during a block, also by processes that begin in it; elsewhere the environment decides."""
    before = os.environ.get(FETCH)
    if asked:
        os.environ[FETCH] = "1"
    try:
        yield
    finally:
        if asked and before is None:
            del os.environ[FETCH]
        elif asked and before is not None:
            os.environ[FETCH] = before


def may_fetch() -> bool:
    """Return whether models may be fetched."""
    return os.environ.get(FETCH, "").strip().lower() in YES


def installed_version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import version  # imports much that a process which only predicts does without

    return version(NAME)


def offered(group: str) -> "dict[str, EntryPoint]":
    """Return a group's entry points by name, without those in the package of a plugin that is switched off."""
    from importlib.metadata import entry_points  # as above

    off = _packages_off()
    return {point.name: point for point in entry_points(group=group) if _package(point) not in off}


def switched_off(group: str, name: str) -> str | None:
    """Return the plugin that an entry point of a group is of, where it is switched off."""
    from importlib.metadata import entry_points  # as above

    off = _packages_off()
    packages = map(_package, entry_points(group=group, name=name))
    return next((off[package] for package in packages if package in off), None)


def _packages_off() -> dict[str, str]:
    """Return the plugins that are switched off, by their package."""
    from importlib.metadata import entry_points  # as above

    off = {entry.strip().removeprefix("-") for entry in os.environ.get(SWITCH, "").split(",")}
    return {_package(one): one.name for one in entry_points(group=PLUGINS) if one.name in off} if any(off) else {}


def _package(point: "EntryPoint") -> str:
    return point.module.partition(".")[0]


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the package index and from a checkout."""
    return f'pip install "{NAME}[{extra}]", or in a checkout: pip install ".[{extra}]"'
