"""Commands that plugins add: entry points of the group ``tuner.commands``, which load no plugin to list them."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tuner.errors import PluginError

GROUP, PLUGINS, SWITCH = "tuner.commands", "tuner", "TUNER_PLUGINS"


def plugin_commands() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield names of commands, and what imports each: a function or a cyclopts app.

    A command of a plugin that ``TUNER_PLUGINS`` switches off is left out: one in the same package.
    """
    switched = {entry.strip().removeprefix("-") for entry in os.environ.get(SWITCH, "").split(",")}
    off = {_package(point) for point in entry_points(group=PLUGINS) if point.name in switched}
    for point in entry_points(group=GROUP):
        if _package(point) not in off:
            yield point.name, partial(_loaded, point)


def _package(point: EntryPoint) -> str:
    return point.module.partition(".")[0]


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"the command {point.name!r} of a plugin cannot be imported ({reason}): update it") from error
