"""The commands of plugins: plugins, plugins why."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from tuner.cli.options import Json, LocalPlugins, document, print_line

if TYPE_CHECKING:
    from tuner.commands.plugins import PluginList
    from tuner.plugin.load.finding import Plugin

#: An import that takes longer is said.
SLOW_SECONDS = 0.5

plugins_app = App(
    name="plugins", help="List the installed plugins; say why one is not used; check one; write a new one."
)


@plugins_app.default
def plugins(*, plugin: LocalPlugins = (), json_output: Json = False) -> None:
    """List the installed plugins, their origin, every knob, and which plugins were refused and why."""
    from tuner.commands.plugins import plugin_list
    from tuner.plugin.core import build_host

    listing = plugin_list(build_host(local=plugin))
    print_line(document("plugins-1", asdict(listing)) if json_output else format_plugins(listing))


def format_plugins(listing: "PluginList") -> str:
    """Return the list for people."""
    from tuner.commands.plugins import EXAMPLE_BLOCKS

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


def _state(plugin: "Plugin") -> str:
    if plugin.off:
        return "switched off by TUNER_PLUGINS"
    slow = f" (its import takes {plugin.seconds:.1f} s)" if plugin.seconds > SLOW_SECONDS else ""
    return (f"refused: {plugin.refused}" if plugin.refused else plugin.module) + slow


@plugins_app.command(name="why")
def why(name: str, /, *, space: str | None = None, plugin: LocalPlugins = (), json_output: Json = False) -> None:
    """Say whether a plugin or a strategy is used, and if not, why.

    Parameters
    ----------
    name
        Name of a plugin or a strategy.
    space
        A search space: does the strategy take part in it?
    """
    from tuner.commands.runs.why import participation
    from tuner.plugin.core import build_host
    from tuner.search.space import load_space

    wanted = None if space is None else load_space(space)
    local = plugin if wanted is None else (*map(Path, wanted.plugins), *plugin)
    answers = participation(build_host(local=local), name, wanted)
    if json_output:
        print_line(document("plugins-why-1", {"answers": [asdict(answer) for answer in answers]}))
        return
    for answer in answers:
        verb = "takes part" if answer.takes_part else "takes no part"
        print_line(f"{answer.kind} {answer.name} {verb}: {answer.reason}")
