"""Commands that plugins add: entry points of the group ``tuner.commands``, which load no plugin to list them."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

from tuner.distribution import SWITCH, offered
from tuner.errors import PluginError, UsageError

GROUP = "tuner.commands"


def plugin_commands() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield names of commands, and what imports each: a function or a cyclopts app.

    A command of a plugin that ``TUNER_PLUGINS`` switches off is left out: one in the same package.
    """
    for name, point in offered(GROUP).items():
        yield name, partial(_loaded, point)


def check_on(name: str) -> None:
    """Check that a command is not one of a plugin that is switched off.

    Raises:
        UsageError: It is.
    """
    if name in offered(GROUP, switched_off=True):
        raise UsageError(f"the command {name!r} is of a plugin that {SWITCH} switches off: take that out of {SWITCH}")


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"the command {point.name!r} of a plugin cannot be imported ({reason}): update it") from error
