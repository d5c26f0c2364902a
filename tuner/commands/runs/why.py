"""Why a plugin or a strategy takes part, or takes none."""

from dataclasses import dataclass
from typing import Any

from tuner.errors import PluginError, nearest
from tuner.plan.parts import SHARED_STAGES, Stage
from tuner.plugin.host import Host
from tuner.plugin.knobs import Numeric
from tuner.plugin.load.finding import Plugin
from tuner.plugin.strategy import Strategy
from tuner.search.setting import CORE_STRATEGIES
from tuner.search.space import Space


@dataclass(frozen=True, slots=True)
class Participation:
    """Whether a plugin or a strategy, as `kind` says, takes part, and why, for people."""

    name: str
    kind: str
    takes_part: bool
    reason: str


def participation(host: Host, name: str, space: Space | None = None) -> tuple[Participation, ...]:
    """Return whether a plugin takes part, and each of its strategies; or whether one strategy does.

    Where no search space is given, any that does not leave a strategy out is meant.
    """
    plugins = [_of_plugin(host, plugin) for plugin in host.plugins if plugin.name == name]
    strategies = [one for one in host.strategies if one == name or host.owner("strategy", one) == name]
    if not plugins and not strategies:
        known = {plugin.name for plugin in host.plugins} | host.strategies.keys()
        raise PluginError(
            f"no plugin and no strategy is called {name!r}{nearest(name, known)}; there are: {', '.join(sorted(known))}"
        )
    return (*plugins, *(_of_strategy(host, one, space) for one in strategies))


def _of_plugin(host: Host, plugin: Plugin) -> Participation:
    if plugin.off:
        return Participation(plugin.name, "plugin", takes_part=False, reason="it is switched off by TUNER_PLUGINS")
    if plugin.refused:
        return Participation(plugin.name, "plugin", takes_part=False, reason=f"it is refused: {plugin.refused}")
    problems = [
        *(problem for problem in host.problems if problem.startswith(f"plugin {plugin.name}: ")),
        *(clash for clash in host.clashes() if repr(plugin.name) in clash),
    ]
    reason = "; ".join((f"{plugin.origin} is loaded", *problems))
    return Participation(plugin.name, "plugin", takes_part=True, reason=reason)


def _of_strategy(host: Host, name: str, space: Space | None) -> Participation:
    def no(reason: str) -> Participation:
        return Participation(name, "strategy", takes_part=False, reason=reason)

    if space is not None and not _listed(name, space):
        return no(f"search space {space.name} names its strategies, and this one is not among them: add it to them")
    stage = host.strategies[name].stage.value
    knobs = {} if space is None else space.knobs
    for knob in (f"{stage}.by", f"{stage}.by2"):
        wanted = knobs.get(knob)
        names = wanted if isinstance(wanted, tuple) else (wanted,)
        if wanted is not None and not isinstance(wanted, Numeric) and name not in names:
            return no(f"knobs.{knob} of the search space is {', '.join(map(str, names))}: add {name!r} to it")
    if (other := _kept_out_by(host, name, space)) is not None:
        return no(
            f"strategy {other!r} takes part in every plan, and the two exclude each other: leave {other!r} out of the "
            "search space's strategies"
        )
    where = "every search space that does not leave it out" if space is None else f"search space {space.name}"
    owner = host.owner("strategy", name)
    return Participation(
        name, "strategy", takes_part=True, reason=f"it writes {stage}, comes with plugin {owner}, and is in {where}"
    )


def _listed(name: str, space: Space | None) -> bool:
    return space is None or space.strategies is None or name in (*space.strategies, *CORE_STRATEGIES)


def _kept_out_by(host: Host, name: str, space: Space | None) -> str | None:
    """Return the strategy of an earlier stage that is in every plan and excludes this one; None where none does."""
    listed = [one for one in host.strategies.values() if _listed(one.name, space)]
    own, order = host.strategies[name], list(Stage)
    for other in (one for one in listed if order.index(one.stage) < order.index(own.stage)):
        beside = [one for one in listed if one.stage is other.stage and one is not other]
        chosen = any(_apart(one, other) for one in beside) if other.stage in SHARED_STAGES else bool(beside)
        if _apart(own, other) and not chosen:
            return other.name
    return None


def _apart(one: Strategy[Any], other: Strategy[Any]) -> bool:
    return one.name in other.excludes or other.name in one.excludes
