"""Commands that plugins add: entry points of the group ``tuner.commands``, which load no plugin to list them."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from tuner.distribution import offered
from tuner.errors import PluginError


def plugin_commands() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield names of commands, and what imports each: a function or a cyclopts app.

    A command of a plugin that ``TUNER_PLUGINS`` switches off is left out: one in the same package.
    """
    for name, point in offered("tuner.commands").items():
        yield name, partial(_loaded, point)


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"the command {point.name!r} of a plugin cannot be imported ({reason}): update it") from error
