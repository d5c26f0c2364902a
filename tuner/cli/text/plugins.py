"""Installed plugins as text."""

from tuner.commands.plugins import EXAMPLE_BLOCKS, PluginList


def format_plugins(listing: PluginList) -> str:
    """Return the list for people."""
    lines = ["plugins:"]
    for plugin in listing.plugins:
        state = f"refused: {plugin.refused}" if plugin.refused else plugin.module
        lines.append(f"  {plugin.name} ({plugin.origin}): {state}")
    lines.append(f"strategies and their knobs (for a model of {EXAMPLE_BLOCKS} blocks):")
    for strategy in listing.strategies:
        lines.append(f"  {strategy.name} writes {strategy.stage}")
        lines += [f"    {knob}" for knob in strategy.knobs]
    lines.append(f"backends: {', '.join(listing.backends)}")
    lines.append(f"objectives: {', '.join(objective.name for objective in listing.objectives)}")
    lines.append(f"built-in tasks: {', '.join(listing.tasks)}")
    return "\n".join(lines)
