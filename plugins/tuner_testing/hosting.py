"""Load a plugin as the host does, for the contracts."""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.plugin.core import build_host
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.host import Host


def hosting(plugin: object) -> Host:
    """Return a host with the core's own plugin, whose names are taken, and another one; fail where it is refused."""
    name = name_of(plugin)
    host = build_host({name: plugin}, installed=False)
    if host.refused:
        pytest.fail(f"plugin {name!r} must be loaded, but it is refused: {host.refused[0].refused}")
    return host


def name_of(plugin: object) -> str:
    """Return a plugin's name for people: that of its file, or of its package's folder."""
    file = getattr(plugin, "__file__", None)
    if file is None:
        return str(getattr(plugin, "__name__", type(plugin).__name__))
    return Path(file).parent.name if Path(file).name == "__init__.py" else Path(file).stem


def offered_by(plugin: object, what: str) -> list[Any]:
    """Return what a plugin offers of its own: its ``strategies``, ``backends`` or ``objectives``."""
    core = getattr(build_host(installed=False), what)
    return [one for name, one in getattr(hosting(plugin), what).items() if name not in core]


def require_hosted(hook: str, item: object, name: str) -> None:
    """Fail where the host refuses a plugin that offers one object by a hook without arguments."""
    plugin = ModuleType(name)
    setattr(plugin, hook, hookimpl(lambda: [item]))
    hosting(plugin)


def place(source: object) -> str:
    """Return where a module, a class or a function is written, as ``mine.py, line 14``; empty where not known."""
    if isinstance(source, ModuleType):
        return Path(getattr(source, "__file__", None) or "").name
    written: Callable[..., object] | type = source if callable(source) else type(source)
    try:
        return f"{Path(inspect.getsourcefile(written) or '').name}, line {inspect.getsourcelines(written)[1]}"
    except (OSError, TypeError):
        return ""
