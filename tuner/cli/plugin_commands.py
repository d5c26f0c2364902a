"""Commands that plugins add: entry points of the group ``tuner.commands``, which load no plugin to list them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tuner.distribution import SWITCH, offered
from tuner.errors import PluginError, UsageError

GROUP = "tuner.commands"


def plugin_commands(called: Sequence[str] = ()) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield names of commands, and what imports each: a function or a cyclopts app.

    A name of two words (``plugins check``) is a command in a group. A command of a plugin that ``TUNER_PLUGINS``
    switches off, one in the same package, is left out.

    Args:
        called: Words of the command line.

    Raises:
        UsageError: The command that is called is one that is left out.
    """
    there = offered(GROUP)
    for point in entry_points(group=GROUP):
        words = point.name.split()
        if point.name in there:
            yield point.name, partial(_loaded, point)
        elif [*called[: len(words)]] == words:
            raise UsageError(f"the plugin with the command {point.name!r} is switched off: take it out of {SWITCH}")


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginError(f"the command {point.name!r} of a plugin cannot be imported ({reason}): update it") from error
