"""Look up what plugins offer, by name."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tuner.errors import PluginError, nearest

V = TypeVar("V")


def find(kind: str, name: str, registered: Mapping[str, V]) -> V:
    """Return the named object.

    Raises:
        PluginError: It is not installed; the message suggests the nearest name.
    """
    if name not in registered:
        raise PluginError(
            f"there is no {kind} {name!r}{nearest(name, registered)}; installed: {', '.join(sorted(registered))}; "
            "`tuner plugins` lists the plugins that were refused"
        )
    return registered[name]


def select(kind: str, names: Iterable[str], registered: Mapping[str, V]) -> list[V]:
    """Return the named objects, in the order of the names.

    Args:
        kind: Kind of object, for the message.
        names: Names to look up.
        registered: Objects by name.

    Raises:
        PluginError: One is not installed; the message suggests the nearest name.
    """
    return [find(kind, name, registered) for name in names]
