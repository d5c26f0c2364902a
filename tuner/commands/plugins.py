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
    """A strategy that is installed, with its knobs as text, for a model of `EXAMPLE_BLOCKS` blocks."""

    name: str
    stage: str
    module: str
    knobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectiveListing:
    """An objective that is installed, and whether to ``maximise`` or to ``minimise`` it."""

    name: str
    direction: str


@dataclass(frozen=True, slots=True)
class PluginList:
    """Everything that is installed; `dataclasses.asdict` gives the JSON of ``tuner plugins --json``.

    Attributes:
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
    """Return every plugin, by default all that are installed, what it offers, and why a refused one was refused."""
    host = host or build_host()
    return PluginList(
        plugins=tuple(host.plugins),
        strategies=tuple(
            StrategyListing(one.name, one.stage.value, type(one).__module__, _knobs(one))
            for one in host.strategies.values()
        ),
        backends=tuple(sorted(host.backends)),
        objectives=tuple(ObjectiveListing(one.name, one.direction) for one in host.objectives.values()),
        tasks=tuple(sorted(host.tasks)),
        input_kinds=tuple(kind_names()),
        problems=(*host.problems, *host.clashes()),
    )


def _knobs(strategy: Strategy[Any]) -> tuple[str, ...]:
    model = example_model(EXAMPLE_BLOCKS)
    texts: dict[str, str] = {}
    try:
        with limited(CALL_SECONDS):
            drawn = corners(lambda source: strategy.sample(Draw(source, strategy.name), model), most=_MOST_COMBINATIONS)
            for knobs in drawn:
                texts.update({name: str(knob) for name, knob in knobs.items()})
    except (Exception, SystemExit, OverdueError) as error:  # noqa: BLE001 - a plugin's strategy may raise anything; the list continues
        texts["error"] = f"sample raises {type(error).__name__}: {error}"
    return tuple(texts.values())
