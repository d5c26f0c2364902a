"""What is installed: plugins, and what each offers."""

from dataclasses import dataclass
from typing import Any

from tuner.plan.example import example_model
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.plugin.knobs import Draw
from tuner.plugin.load.calls import CALL_SECONDS, OverdueError, limited
from tuner.plugin.load.finding import Plugin
from tuner.plugin.sources import corners
from tuner.plugin.strategy import Strategy
from tuner.task.inputs import kind_names

EXAMPLE_BLOCKS = 20
_MOST_COMBINATIONS = 64


@dataclass(frozen=True, slots=True)
class StrategyListing:
    """A strategy that is installed.

    Attributes:
        name: Its name.
        stage: Part of the plan that it writes.
        module: Module that its class is defined in.
        knobs: Its knobs as text, for a model of `EXAMPLE_BLOCKS` blocks.
    """

    name: str
    stage: str
    module: str
    knobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveListing:
    """An objective that is installed.

    Attributes:
        name: Its name.
        direction: ``maximise`` or ``minimise``.
    """

    name: str
    direction: str


@dataclass(frozen=True, slots=True)
class PluginList:
    """Everything that is installed; `dataclasses.asdict` gives the JSON of ``tuner plugins --json``.

    Attributes:
        plugins: All plugins, the refused ones with their reason.
        strategies: All strategies with their knobs.
        backends: Names of the backends.
        objectives: All objectives.
        tasks: Names of the built-in tasks.
        input_kinds: Names of the kinds of samples.
        problems: What is wrong with plugins that were loaded, such as two that realise the same kind of edit.
    """

    plugins: tuple[Plugin, ...]
    strategies: tuple[StrategyListing, ...]
    backends: tuple[str, ...]
    objectives: tuple[ObjectiveListing, ...]
    tasks: tuple[str, ...]
    input_kinds: tuple[str, ...]
    problems: tuple[str, ...]


def plugin_list(host: Host | None = None) -> PluginList:
    """Return every plugin, what it offers, and why a refused one was refused.

    Args:
        host: The plugins to list; all that are installed where it is not given.
    """
    host = host or build_host()
    return PluginList(
        plugins=tuple(host.plugins),
        strategies=tuple(_listing(strategy) for strategy in host.strategies.values()),
        backends=tuple(sorted(host.backends)),
        objectives=tuple(
            ObjectiveListing(objective.name, objective.direction) for objective in host.objectives.values()
        ),
        tasks=tuple(sorted(host.tasks)),
        input_kinds=tuple(kind_names()),
        problems=(*host.problems, *host.clashes()),
    )


def _listing(strategy: Strategy[Any]) -> StrategyListing:
    return StrategyListing(strategy.name, strategy.stage.value, type(strategy).__module__, _knobs(strategy))


def _knobs(strategy: Strategy[Any]) -> tuple[str, ...]:
    model = example_model(EXAMPLE_BLOCKS)
    texts: dict[str, str] = {}
    try:
        with limited(CALL_SECONDS):
            for knobs in corners(
                lambda source: strategy.sample(Draw(source, strategy.name), model), most=_MOST_COMBINATIONS
            ):
                texts.update({name: str(knob) for name, knob in knobs.items()})
    except (Exception, SystemExit, OverdueError) as error:  # noqa: BLE001 - a plugin's strategy may raise anything; the list continues
        texts["error"] = f"sample raises {type(error).__name__}: {error}"
    return tuple(texts.values())
