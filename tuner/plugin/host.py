"""The host: finds plugins, loads them one at a time, and isolates the broken ones."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import getmembers, signature
from typing import Any, TypeVar, get_args

import pluggy

from tuner.backends.base import Backend
from tuner.backends.extensions import Extensions, OptimiserFactory
from tuner.backends.lowering import Lowering
from tuner.errors import PluginError, TunerError, nearest
from tuner.plan.parts import Optimiser, Stage
from tuner.plugin import hookspecs
from tuner.plugin.strategy import Strategy
from tuner.results.objectives import Objective
from tuner.results.records import TrialRecord
from tuner.task import Task

log = logging.getLogger(__name__)
V = TypeVar("V")
GROUP = "tuner"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin that was loaded or refused.

    Attributes:
        name: Name of the entry point, or the name it was registered under.
        origin: Distribution and version, or "core".
        module: Name of the loaded module or class.
        refused: Why the plugin was refused; empty if it was loaded.
    """

    name: str
    origin: str
    module: str
    refused: str = ""


class Host:
    """Everything installed, as typed objects by name.

    A new host is empty: whoever builds it adds plugins, as `tuner.plugin.core.build_host` does.
    """

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self.plugins: list[Plugin] = []
        self.strategies: dict[str, Strategy[Any]] = {}
        self.backends: dict[str, Backend] = {}
        self.objectives: dict[str, Objective] = {}
        self.tasks: dict[str, Callable[[], Task]] = {}

    def add(self, name: str, origin: str, load: Callable[[], object]) -> None:
        """Load one plugin; one that raises is refused, and harms nothing else.

        Args:
            name: Name to register it under; must be unique.
            origin: Distribution it comes from, as text for people.
            load: Returns the module or object with hook implementations.
        """
        module, reason = "", ""
        taken = self._manager.has_plugin(name)
        try:
            plugin = load()
            module = getattr(plugin, "__name__", type(plugin).__name__)
            self._register(name, plugin)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's import or hook may raise anything
            reason = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
            if not taken and self._manager.has_plugin(name):
                self._manager.unregister(name=name)
        self.plugins.append(Plugin(name, origin, module, " ".join(reason.split())))

    def add_installed(self) -> None:
        """Load the plugins that installed packages name as entry points, one at a time."""
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
            self.add(point.name, _origin(point), point.load)

    @property
    def refused(self) -> list[Plugin]:
        """Refused plugins."""
        return [plugin for plugin in self.plugins if plugin.refused]

    def lowerings(self, backend: str) -> dict[str, Lowering]:
        """Return how `backend` realises tail edits, by kind; a plugin that raises is logged and offers none.

        Raises:
            PluginError: Two plugins realise the same kind.
        """
        return self._by_kind("tuner_lowerings", backend)

    def extensions(self, backend: str) -> Extensions:
        """Return what plugins add to a backend.

        Raises:
            PluginError: Two plugins realise the same kind.
        """
        return Extensions(self.lowerings(backend), self._by_kind("tuner_losses", backend), self._optimisers(backend))

    def optimisers(self) -> tuple[str, ...]:
        """Return the names of all optimisers: those that every backend has, then those that plugins add to any."""
        added = (name for backend in self.backends for name in self._optimisers(backend))
        return tuple(dict.fromkeys((*get_args(Optimiser), *added)))

    def _optimisers(self, backend: str) -> dict[str, OptimiserFactory]:
        return self._by_kind("tuner_optimisers", backend, taken=get_args(Optimiser))

    def _by_kind(self, hook: str, backend: str, taken: Iterable[str] = ()) -> dict[str, Any]:
        """Return what plugins offer a backend, by kind; a plugin that raises is logged and offers nothing.

        Args:
            hook: Name of the hook; it takes the backend's name.
            backend: The backend.
            taken: Kinds that are the core's own.

        Raises:
            PluginError: Two plugins offer the same kind.
        """
        collected: dict[str, Any] = {}
        owners = dict.fromkeys(taken, "core")
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            name = implementation.plugin_name
            arguments = {"backend": backend}
            try:
                function: Callable[..., Any] = implementation.function
                offered = dict(function(*(arguments[argument] for argument in implementation.argnames)) or {})
            except Exception:  # a plugin may lack a library; what it does not offer is not supported
                log.warning("plugin %s: %s raised", name, hook, exc_info=True)
                continue
            for kind in offered:
                if kind in owners:
                    raise PluginError(f"plugins {owners[kind]!r} and {name!r} both realise {kind!r}: remove one")
                owners[kind] = name
            collected.update(offered)
        return collected

    def trial_done(self, study: str, record: TrialRecord) -> None:
        """Call every observer; an exception is logged and does no harm."""
        for implementation in self._manager.hook.tuner_trial_done.get_hookimpls():
            arguments = {"study": study, "record": record}
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except Exception:  # an observer's bug is not the study's
                log.warning("plugin %s: tuner_trial_done raised", implementation.plugin_name, exc_info=True)

    def backend(self, name: str) -> Backend:
        """Return a backend.

        Raises:
            PluginError: There is none of this name.
        """
        return _find("backend", name, self.backends)

    def _register(self, name: str, plugin: object) -> None:
        if self._manager.has_plugin(name):
            raise PluginError(f"another plugin is called {name!r} already: rename one entry point")
        _check_hooks(name, plugin, self._manager)
        self._manager.register(plugin, name)
        strategies: list[Strategy[Any]] = self._offered(name, "tuner_strategies", Strategy)
        for strategy in strategies:
            _check_strategy(strategy)
        backends: list[Backend] = self._offered(name, "tuner_backends", Backend)
        objectives: list[Objective] = self._offered(name, "tuner_objectives", Objective)
        tasks = self._call(name, "tuner_tasks") or {}
        if not isinstance(tasks, Mapping):
            raise PluginError(f"tuner_tasks returns tasks by name, but it returned a {type(tasks).__name__}")
        # everything is checked before anything is taken, so that a refused plugin leaves no part of itself
        merged_strategies = _merged("strategy", name, self.strategies, _named("strategy", strategies))
        merged_backends = _merged("backend", name, self.backends, _named("backend", backends))
        merged_objectives = _merged("objective", name, self.objectives, _named("objective", objectives))
        self.tasks = _merged("task", name, self.tasks, tasks)
        self.strategies, self.backends, self.objectives = merged_strategies, merged_backends, merged_objectives

    def _call(self, plugin_name: str, hook: str) -> Any:
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            if implementation.plugin_name == plugin_name:
                return implementation.function()
        return None

    def _offered(self, plugin_name: str, hook: str, kind: type) -> list[Any]:
        offered = self._call(plugin_name, hook) or ()
        if not isinstance(offered, Iterable):
            raise PluginError(f"{hook} returns a list of {kind.__name__} objects, but it returned {offered!r}")
        offered = list(offered)
        for item in offered:
            if not isinstance(item, kind):
                raise PluginError(f"{hook} returns {kind.__name__} objects, but one is a {type(item).__name__}")
        return offered


def _check_hooks(name: str, plugin: object, manager: pluggy.PluginManager) -> None:
    """Name a misspelt hook or argument: pluggy would ignore an unmarked one and stop at a marked one."""
    known = {hook for hook in vars(hookspecs) if hook.startswith("tuner_")}
    for attribute, member in getmembers(plugin, callable):
        if attribute.startswith("tuner_") and attribute not in known:
            raise PluginError(f"there is no hook {attribute!r}{nearest(attribute, known)}")
        if attribute in known and manager.parse_hookimpl_opts(plugin, attribute) is None:
            raise PluginError(f"{attribute} is not marked: put @tuner.hookimpl above it in plugin {name!r}")
        if attribute in known:
            _check_arguments(attribute, member)


def _check_arguments(hook: str, implementation: Callable[..., object]) -> None:
    known = tuple(signature(getattr(hookspecs, hook)).parameters)
    for argument in signature(implementation).parameters:
        if argument not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no argument"
            raise PluginError(f"{hook} has no argument {argument!r}{nearest(argument, known)}: {takes}")


def _check_strategy(strategy: Strategy[Any]) -> None:
    name, stage = getattr(strategy, "name", None), getattr(strategy, "stage", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PluginError(f"a strategy's name must be an identifier, but {type(strategy).__name__} has {name!r}")
    if not isinstance(stage, Stage):
        raise PluginError(f"strategy {name!r} must set stage to a tuner.plugin.Stage, got {stage!r}")


def _named(kind: str, offered: Iterable[V]) -> dict[str, V]:
    named: dict[str, V] = {}
    for item in offered:
        name = str(getattr(item, "name", ""))
        if name in named:
            raise PluginError(f"it offers two {kind} objects called {name!r}: rename one")
        named[name] = item
    return named


def _merged(kind: str, plugin: str, registered: dict[str, V], offered: Mapping[str, V]) -> dict[str, V]:
    for name in offered:
        if name in registered:
            raise PluginError(f"{kind} {name!r} of plugin {plugin!r} has a name that is taken: rename it")
    return {**registered, **offered}


def _find(kind: str, name: str, registered: Mapping[str, V]) -> V:
    if name not in registered:
        raise PluginError(
            f"there is no {kind} {name!r}{nearest(name, registered)}; installed: {', '.join(sorted(registered))}; "
            "`tuner plugins` lists the plugins that were refused"
        )
    return registered[name]


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"


def select(kind: str, names: Iterable[str], registered: Mapping[str, V]) -> list[V]:
    """Return the named objects, in the order of the names.

    Args:
        kind: Kind of object, for the message.
        names: Names to look up.
        registered: Objects by name.

    Raises:
        PluginError: One is not installed; the message suggests the nearest name.
    """
    return [_find(kind, name, registered) for name in names]
