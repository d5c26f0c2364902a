"""Load a plugin as the host does, for the contracts."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.plugin.core import build_host
from tuner.plugin.host import Host


def hosting(plugin: object) -> Host:
    """Return a host with one plugin alone; fail where it refuses the plugin."""
    return _accepted(Host(), plugin)


def require_accepted(plugin: object) -> None:
    """Fail where a host with the core's own plugin refuses a plugin, whose names may be taken there."""
    _accepted(build_host(installed=False), plugin)


def _accepted(host: Host, plugin: object) -> Host:
    name = getattr(plugin, "__name__", type(plugin).__name__)
    host.add(name, "under test", lambda: plugin)
    if host.refused:
        pytest.fail(f"plugin {name!r} must be loaded, but it is refused: {host.refused[0].refused}")
    return host


def place(source: object) -> str:
    """Return where a class or a function is written, as ``mine.py, line 14``; empty where that is not known."""
    written: Callable[..., object] | type = source if callable(source) else type(source)
    try:
        written = inspect.unwrap(written)
        return f"{Path(inspect.getsourcefile(written) or '').name}, line {inspect.getsourcelines(written)[1]}"
    except (OSError, TypeError):
        return ""
