"""Installed plugins as text."""

from tuner.commands.plugins import EXAMPLE_BLOCKS, PluginList
from tuner.plugin.load.finding import Plugin

#: An import that takes longer is said.
SLOW_SECONDS = 0.5


def format_plugins(listing: PluginList) -> str:
    """Return the list for people."""
    lines = ["plugins:"]
    lines += [f"  {plugin.name} ({plugin.origin}): {_state(plugin)}" for plugin in listing.plugins]
    lines.append(f"strategies and their knobs (for a model of {EXAMPLE_BLOCKS} blocks):")
    for strategy in listing.strategies:
        lines.append(f"  {strategy.name} writes {strategy.stage}")
        lines += [f"    {knob}" for knob in strategy.knobs]
    lines.append(f"backends: {', '.join(listing.backends)}")
    lines.append(f"objectives: {', '.join(objective.name for objective in listing.objectives)}")
    lines.append(f"built-in tasks: {', '.join(listing.tasks)}")
    lines.append(f"kinds of samples: {', '.join(listing.input_kinds)}")
    lines += [f"problem: {problem}" for problem in listing.problems]
    return "\n".join(lines)


def _state(plugin: Plugin) -> str:
    if plugin.off:
        return "switched off by TUNER_PLUGINS"
    slow = f" (its import takes {plugin.seconds:.1f} s)" if plugin.seconds > SLOW_SECONDS else ""
    return (f"refused: {plugin.refused}" if plugin.refused else plugin.module) + slow
