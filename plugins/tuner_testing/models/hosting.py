"""Load a plugin as the host does, for the contracts."""

import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.distribution import NAME
from tuner.plugin.core import build_host
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.host import OFFERED, Host


def hosting(plugin: object) -> Host:
    """Return a host with the core's own plugin, and another one; fail where it is refused."""
    host = build_host({name_of(plugin): plugin}, installed=False)
    if host.refused:
        _refuse(plugin, host.refused[0].refused)
    return host


def require_free_names(plugin: object, known: object = None) -> None:
    """Fail where a plugin takes a name of a first-party plugin, which loads first; `known` is of one, and may."""
    host, ours = hosting(plugin), installed_host()
    file = getattr(plugin, "__file__", None) or ""
    others = {one.name for one in ours.plugins if one.origin.startswith(f"{NAME} ") and not _is_in(one.module, file)}
    for kind, offer in OFFERED.items():
        for name, offered in getattr(host, offer.attribute).items():
            owner, taken = ours.owner(kind, name), getattr(ours, offer.attribute).get(name)
            own = offered is known and (taken == known or (kind != "objective" and type(taken) is type(known)))
            if owner in others and not own:
                _refuse(plugin, f"{kind} {name!r} has a name that is taken by plugin {owner!r}: rename it")
    known_kinds = ours.extensions("torch").owners
    for what, kind in host.extensions("torch").owners:
        for owner in others.intersection(known_kinds.get((what, kind), ())):
            _refuse(plugin, f"{what} {kind!r} is a kind that plugin {owner!r} realises: rename it")


@cache
def installed_host() -> Host:
    """Return a host with all that is installed."""
    return build_host()


def _refuse(plugin: object, reason: str) -> None:
    pytest.fail(f"plugin {name_of(plugin)!r} must be loaded, but it is refused: {reason}")


def _is_in(module: str, file: str) -> bool:
    own = getattr(sys.modules.get(module), "__file__", None)
    return bool(own and file) and os.path.realpath(str(own)) == os.path.realpath(file)


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
    require_free_names(plugin, item)


def place(source: object) -> str:
    """Return where a module, a class or a function is written, as ``mine.py, line 14``; empty where not known."""
    if isinstance(source, ModuleType):
        return Path(getattr(source, "__file__", None) or "").name
    written: Callable[..., object] | type = source if callable(source) else type(source)
    try:
        return f"{Path(inspect.getsourcefile(written) or '').name}, line {inspect.getsourcelines(written)[1]}"
    except (OSError, TypeError):
        return ""
