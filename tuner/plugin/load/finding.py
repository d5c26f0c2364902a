"""Where plugins come from: entry points of installed packages, and Python files and modules that the user names."""

import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TypeVar

from tuner.distribution import NAME, PLUGINS, SWITCH, entry_points
from tuner.errors import PluginError, nearest
from tuner.files import import_file
from tuner.plugin.hookspecs import hookimpl
from tuner.reading import expanded, kind_of
from tuner.results.records.config import task_file

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin before it is loaded: `load` returns the module or object with hook implementations.

    Attributes:
        origin: Distribution and version, or a file and the digest of its content.
        file: The plugin's file; empty where a package is installed.
        off: Whether it is switched off.
    """

    name: str
    origin: str
    load: Callable[[], object]
    file: str = ""
    off: bool = False


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that was loaded or refused.

    Attributes:
        name: Name of the entry point, or the name it was registered under.
        origin: Distribution and version, or "core"; of a local plugin its file's name and the digest of its content.
        module: Name of the loaded module or class; of a local plugin its file.
        refused: Why the plugin was refused; empty if it was loaded.
        seconds: Time to import it.
        off: Whether it is switched off.
        local: Whether the user named its file or gave its module.
    """

    name: str
    origin: str
    module: str
    refused: str = ""
    seconds: float = field(default=0.0, compare=False)
    off: bool = False
    local: bool = False


def installed_plugins() -> tuple[list[Found], list[Found]]:
    """Return the plugins of installed packages: the first-party ones, which load first, and all others."""
    points = sorted(entry_points(PLUGINS), key=lambda point: point.name)
    off = _switched_off([point.name for point in points])
    # each look at a name or a version reads all that its package says of itself
    origins = {dist: f"{dist.name} {dist.version}" if dist else "unknown" for dist in {one.dist for one in points}}
    ours, others = list[Found](), list[Found]()
    for point in points:
        found = Found(point.name, origins[point.dist], point.load, off=point.name in off)
        (ours if found.origin.partition(" ")[0] == NAME else others).append(found)
    return ours, others


def local_plugin(given: str | Path | ModuleType) -> Found:
    """Return the plugin in a Python file or in the folder of a package, or that a module is.

    A module must have a file: the processes that trials run in load it from there. Of ``file.py:function``, the plugin
    offers that function as an objective.
    """
    if isinstance(given, str) and (found := task_file(given))[1]:
        return _own_objective(*found)
    place = getattr(given, "__file__", None) if isinstance(given, ModuleType) else given
    if place is None:
        raise PluginError(f"a plugin must be a module with a file, but {given!r} has none: write it into a file")
    if "\0" in str(place):
        raise PluginError(f"there is no file {str(place)!r}: check the path")
    path = Path(os.path.abspath(expanded(place)))  # noqa: PTH100 - `absolute` keeps ``..``
    if kind_of(path) == "folder":
        path /= "__init__.py"
    package = path.name == "__init__.py"

    def load() -> object:
        if isinstance(given, ModuleType):
            return given
        if kind_of(path) != "file":
            raise PluginError(f"there is no file {path}: check the path, or put the file back")
        module = import_file(path, "plugin")
        known = sys.modules.get(path.stem)
        is_free = path.stem.isidentifier() and known is None and find_spec(path.stem) is None
        if is_free or getattr(known, "__file__", None) == str(path):
            sys.modules[path.stem] = module  # `model.factory` may name it without a path of this machine
        return module

    name = path.parent.name if package else path.stem
    sources = sorted(path.parent.rglob("*.py")) if package and kind_of(path) == "file" else [path]
    digest = hashlib.blake2b(
        b"".join(one.read_bytes() for one in sources if kind_of(one) == "file"), digest_size=4
    ).hexdigest()
    return Found(name, f"{name if package else path.name} {digest}", load, str(path))


def _own_objective(file: str, name: str) -> Found:
    """Return the plugin that a function of predictions and labels in a Python file is."""
    found = local_plugin(file)

    def load() -> object:
        function = getattr(found.load(), name, None)
        if not callable(function):
            raise PluginError(f"{file} has no function {name!r} at its top level: check the name")
        return SimpleNamespace(tuner_objectives=hookimpl(lambda: [function]))

    return Found(f"{found.name}:{name}", f"{found.origin} {name}", load, f"{found.file}:{name}")


def _switched_off(names: Iterable[str]) -> set[str]:
    entries = [entry.strip() for entry in os.environ.get(SWITCH, "").split(",") if entry.strip()]
    off = set[str]()
    for entry in entries:
        if not entry.startswith("-"):
            raise PluginError(f"{SWITCH} must be names with a minus, which switches them off, got {entry!r}: -{entry}")
        off.add(entry.removeprefix("-"))
    known = sorted(names)
    for name in sorted(off - set(known)):
        raise PluginError(
            f"{SWITCH} names {name!r}, which is not installed{nearest(name, known)}; installed: {', '.join(known)}"
        )
    return off


def select(kind: str, names: Collection[str], registered: Mapping[str, V]) -> list[V]:
    """Return the named objects of a kind, in the order of the names.

    Raises:
        PluginError: One is not installed; the message suggests the nearest name.
    """
    for name in names:
        if name not in registered:
            raise PluginError(
                f"there is no {kind} {name!r}{nearest(name, registered)}; installed: {', '.join(sorted(registered))}; "
                "`tuner plugins` lists the plugins that were refused"
            )
    return [registered[name] for name in names]
