"""Search what is installed, and indexes; nothing is fetched."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from tuner.plugin.core import build_host
from tuner.plugin.host import OFFERED, Host
from tuner.plugin.load.finding import Plugin
from tuner_gallery.index import COOKBOOK, Entry, cookbook, read_index


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plugin that a search found; `dataclasses.asdict` gives the JSON of ``tuner plugins search --json``.

    Attributes:
        entry: The plugin.
        installed: Its distribution and version; empty where it is not installed.
        index: Index that has it; empty where none does.
    """

    entry: Entry
    installed: str
    index: str


def search(words: Sequence[str], indexes: Sequence[Path] = ()) -> list[FoundPlugin]:
    """Return the plugins that have every word, those first whose name does.

    They are installed, of the cookbook, or of indexes. Of one name, the first index that has it says what
    was measured, and the installed plugin the rest.

    Raises:
        PluginError: An index cannot be read.
    """
    read = [(str(path), read_index(path)) for path in indexes]
    found: dict[str, FoundPlugin] = {}
    for name, index in (*read, (COOKBOOK, cookbook())):
        for entry in index.plugins:
            found.setdefault(_same(entry.name), FoundPlugin(entry, "", name))
    host = build_host()
    for plugin in host.plugins:
        if plugin.name == "core" or plugin.refused or plugin.off:
            continue
        known = found.get(_same(plugin.name))
        entry = _installed(host, plugin)
        measured = replace(entry, measured=known.entry.measured) if known else entry
        found[_same(plugin.name)] = FoundPlugin(measured, plugin.origin, known.index if known else "")
    hits = [one for one in found.values() if one.entry.has(words)]
    return sorted(hits, key=lambda one: (not one.entry.is_called(words), one.entry.name))


def _installed(host: Host, plugin: Plugin) -> Entry:
    """Return what an installed plugin says of itself: what it offers, its docstring, its distribution's metadata."""
    adds = added_by(host, plugin.name)
    text = getattr(sys.modules.get(plugin.module), "__doc__", None) or ""
    summary = " ".join(text.partition("\n\n")[0].split())
    try:
        about = metadata(plugin.origin.partition(" ")[0])
    except (PackageNotFoundError, ValueError):
        return Entry(plugin.name, adds, summary)
    terms = next((about[key] for key in ("License-Expression", "License") if key in about), "")
    address = next((text.partition(", ")[2] for text in about.get_all("Project-URL") or ()), "")
    return Entry(plugin.name, adds, summary, terms.partition("\n")[0], address=address)


def added_by(host: Host, plugin: str) -> tuple[str, ...]:
    """Return what a plugin adds, such as ``strategy slda``."""
    own = [(kind, name) for kind, offer in OFFERED.items() for name in getattr(host, offer.attribute)]
    own = [(kind, name) for kind, name in own if host.owner(kind, name) == plugin]
    own += [what for what, owners in host.extensions("torch").owners.items() if plugin in owners]
    return tuple(f"{kind} {name}" for kind, name in own)


def _same(name: str) -> str:
    return name.replace("-", "_").lower()
