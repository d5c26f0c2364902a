"""The name to install this package by, ``device-tuner``, and what installed packages offer to ``tuner``."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, reduce
from importlib import import_module
from typing import Any, NamedTuple

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
#: Group of the entry points of modules with `build` and `input_defaults`; their names are in front of a model's name.
PUBLISHERS = "tuner.published"
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


class EntryPoint(NamedTuple):
    """What an installed package offers: as `importlib.metadata` has it, which takes far longer to find it.

    Attributes:
        group: What it is for.
        name: Its name in the group.
        value: Where it is, as ``"module:attribute"``, or a module.
        metadata: Folder of the package's metadata.
    """

    group: str
    name: str
    value: str
    metadata: str

    @property
    def module(self) -> str:
        """Name of the module that it is in."""
        return self.value.partition(":")[0].strip()

    @property
    def origin(self) -> str:
        """Name and version of what was installed."""
        from importlib.metadata import Distribution  # as above

        found = Distribution.at(self.metadata)
        return f"{found.name} {found.version}"

    def load(self) -> Any:
        """Import the module and return the object."""
        attributes = self.value.partition(":")[2].strip().split(".")
        return reduce(getattr, filter(None, attributes), import_module(self.module))


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group; of what is installed twice, those that are first on the path."""
    found = dict[str, tuple[EntryPoint, ...]]()
    for place in (place or "." for place in sys.path):
        with suppress(OSError):  # a path that is not there
            for name, points in _points_in(place, os.stat(place).st_mtime_ns).items():  # noqa: PTH116 - pathlib is slow
                found.setdefault(name, points)
    return [point for points in found.values() for point in points if point.group == group]


@cache
def _points_in(folder: str, _: int) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points for `tuner` in a folder as it was last changed, by the name of what is installed."""
    found = dict[str, tuple[EntryPoint, ...]]()
    for entry in os.listdir(folder) if os.path.isdir(folder) else ():  # noqa: PTH112, PTH208 - as above
        if entry.endswith((".dist-info", ".egg-info")):
            name = re.sub(r"[-_.]+", "-", entry.rpartition(".")[0].partition("-")[0]).lower()
            found.setdefault(name, tuple(_read(os.path.join(folder, entry))))  # noqa: PTH118 - as above
    return found


def _read(metadata: str) -> Iterator[EntryPoint]:
    try:
        with open(f"{metadata}/entry_points.txt", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            text = file.read()
    except OSError:
        return
    group = ""
    for line in map(str.strip, text.splitlines() if f"[{PLUGINS}" in text else ()):
        name, is_point, value = line.partition("=")
        if line.startswith("["):
            group = line.strip("[]")
        elif is_point and not line.startswith(("#", ";")) and group.partition(".")[0] == PLUGINS:
            yield EntryPoint(group, name.strip(), value.partition("[")[0].strip(), metadata)


def offered(group: str) -> dict[str, EntryPoint]:
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


def _package(point: EntryPoint) -> str:
    return point.module.partition(".")[0]


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the package index and from a checkout."""
    return f'pip install "{NAME}[{extra}]", or in a checkout: pip install ".[{extra}]"'
