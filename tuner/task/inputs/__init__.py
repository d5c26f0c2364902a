"""Kinds of samples: images, arrays and signals, and those that plugins add."""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from tuner.distribution import SWITCH, offered
from tuner.errors import TaskError, nearest
from tuner.task.inputs.base import InputKind

#: Group of the entry points of kinds that plugins add: a device that predicts loads this one object of a plugin.
GROUP = "tuner.input_kinds"
#: Classes of our own kinds, each in the module of its name: a device that predicts loads one.
_OWN: Mapping[str, str] = {"images": "Images", "arrays": "Arrays", "signals": "Signals"}


def input_kind(name: str, needs: str = "") -> InputKind:
    """Return the kind of samples that task files and bundles call by a name; errors say to install what it `needs`.

    Raises:
        TaskError: There is none, or what a plugin offers by this name is none.
    """
    return _own_kind(name) if name in _OWN else _offered_kind(name, os.environ.get(SWITCH, ""), needs)


def plugin_of_kind(name: str) -> str:
    """Return distribution and version of the plugin that offers a kind; empty for one of our own."""
    point = None if name in _OWN else offered(GROUP).get(name)
    return point.origin if point else ""


def kind_names() -> list[str]:
    """Return the names of all kinds that are installed and not switched off, sorted; no plugin is imported."""
    return sorted({*_OWN, *offered(GROUP)})


@cache
def _own_kind(name: str) -> InputKind:
    kind: InputKind = getattr(import_module(f"tuner.task.inputs.{name}"), _OWN[name])()
    return kind


@cache
def _offered_kind(name: str, _: str, needs: str) -> InputKind:
    """Return a kind that a plugin offers, which depends on the plugins that are switched off."""
    point = offered(GROUP).get(name)
    if point is None:
        names = kind_names()
        raise TaskError(
            f"kind must be one of {', '.join(names)}, got {name!r}{nearest(name, names)}: install "
            f"{needs or 'the plugin that offers it'}, or take that out of {SWITCH}"
        )
    try:
        kind = point.load()
    except Exception as error:
        raise TaskError(
            f"the kind {name!r} of a plugin cannot be imported ({type(error).__name__}: {error}): update it"
        ) from error
    if not isinstance(kind, InputKind) or kind.name != name:
        raise TaskError(f"the entry point {name!r} of {GROUP} must be an InputKind of this name, got {kind!r:.80}")
    return kind
