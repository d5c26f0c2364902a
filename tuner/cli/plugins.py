"""The commands of plugins: plugins, plugins why, plugins check, plugins new."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tuner.cli.options import Json, LocalPlugins, Out, print_line
from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.commands.authors.plugins import PluginList
    from tuner.plugin.load.finding import Plugin

#: An import that takes longer is said.
SLOW_SECONDS = 0.5

plugins_app = App(
    name="plugins", help="List the installed plugins; say why one takes no part; check one; write a new one."
)


@plugins_app.default
def plugins(*, plugin: LocalPlugins = (), json_output: Json = False) -> None:
    """List the installed plugins, their origin, every knob, and which plugins were refused and why."""
    from tuner.commands.authors.plugins import plugin_list
    from tuner.plugin.core import build_host

    listing = plugin_list(build_host(local=plugin))
    print_line(json.dumps(asdict(listing)) if json_output else format_plugins(listing))


def format_plugins(listing: "PluginList") -> str:
    """Return the list for people."""
    from tuner.commands.authors.plugins import EXAMPLE_BLOCKS

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
    """Say why a plugin or a strategy is refused, switched off or takes no part, or that all is well.

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
        print_line(json.dumps({"answers": [asdict(answer) for answer in answers]}))
        return
    for answer in answers:
        verb = "takes part" if answer.takes_part else "takes no part"
        print_line(f"{answer.kind} {answer.name} {verb}: {answer.reason}")


@plugins_app.command(name="new")
def new(
    name: str,
    /,
    *,
    kind: Annotated[str, Parameter(name="--kind")] = "lowering",
    out: Out = None,
    json_output: Json = False,
) -> None:
    """Write a package with a plugin: its module, its test, a search space, a README and a CI file.

    Parameters
    ----------
    name
        Name of the plugin, such as sparse; the package is then tuner-sparse.
    kind
        What it adds: backend, data, loss, lowering (a strategy with an edit of the tail), objective, strategy or task.
    out
        Folder of the package, which must be empty or not exist yet [default: NAME].
    """
    from tuner.commands.authors.scaffold import write_package

    folder, files = write_package(name, kind, out or Path(name))
    if json_output:
        print_line(json.dumps({"folder": str(folder), "files": files}))
        return
    print_line(f"{folder}: {', '.join(files)}")
    print_line(f"next: cd {folder} && pip install --editable . && pytest && tuner plugins")


@plugins_app.command(name="check")
def check(package: str, /, *, json_output: Json = False) -> None:
    """Check whether a plugin obeys every rule; exit with 1 where one is broken.

    Parameters
    ----------
    package
        A module, the name of an installed plugin, a Python file, or a package's folder.
    """
    from tuner.cli.text.check import format_check
    from tuner.commands.authors.check import check_plugin

    report = check_plugin(package)
    print_line(json.dumps(asdict(report)) if json_output else format_check(report))
    if report.broken:
        raise TunerError(f"{package} breaks {report.broken} of {len(report.rules)} rules: correct what is listed above")
