"""Versions of plugins: which took part, and whether the same are installed."""

from collections.abc import Iterable, Mapping

from tuner.plan.trial import TrialPlan
from tuner.plugin.host import Host


def taking_part(host: Host, strategies: Iterable[str], backends: Iterable[str]) -> dict[str, str]:
    """Return the origins of the plugins that offer these strategies and backends, by the plugins' names."""
    offered = [("strategy", name) for name in strategies] + [("backend", name) for name in backends]
    return _origins(host, (host.owner(kind, name) for kind, name in offered))


def trained_by(host: Host, plan: TrialPlan, knobs: Iterable[str]) -> dict[str, str]:
    """Return the origins of the plugins that made a plan or realise its edits, by the plugins' names.

    Args:
        host: What is installed.
        plan: What was trained.
        knobs: Names of the knobs that were drawn for it.
    """
    backend = plan.runtime.backend
    added = host.extensions(backend)
    realised = {owner for what in added.kinds(plan) for owner in added.owners.get(what, ())}
    strategies = {name.partition(".")[0] for name in knobs}
    return taking_part(host, strategies, [backend]) | _origins(host, realised)


def differences(host: Host, recorded: Mapping[str, str]) -> str:
    """Return for people which plugins are not those that were recorded; empty where all are.

    Args:
        host: What is installed.
        recorded: Origins of plugins by their names, as `taking_part` gives them.
    """
    there = _origins(host, recorded)
    return "; ".join(
        f"plugin {name} was {origin}, and is {there.get(name, 'not installed')} now"
        for name, origin in sorted(recorded.items())
        if there.get(name) != origin
    )


def _origins(host: Host, names: Iterable[str | None]) -> dict[str, str]:
    wanted = set(names)
    loaded = (one for one in host.plugins if not one.refused and not one.off and one.name != "core")
    return {one.name: one.origin for one in loaded if one.name in wanted}
