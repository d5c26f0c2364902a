"""The host: finds plugins, loads them one at a time, and keeps the broken ones out of everyone's way."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from inspect import getmembers
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from tuner import hookspecs
from tuner.errors import PluginError, TunerError, nearest
from tuner.strategy import Strategy

if TYPE_CHECKING:
    from tuner.backends.base import Backend, Lowering
    from tuner.results.objectives import Objective
    from tuner.results.records import TrialRecord
    from tuner.task import Task

log = logging.getLogger(__name__)
V = TypeVar("V")
GROUP = "tuner"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin the host looked at.

    Attributes:
        name: Of the entry point, or the name it was registered under.
        origin: Distribution and version, or "core".
        module: What was loaded.
        refused: Why it takes no part; empty where it does.
    """

    name: str
    origin: str
    module: str
    refused: str = ""


class Host:
    """Everything installed, as typed objects by name.

    Args:
        entry_points: Whether installed plugins are looked for.
        plugins: More plugins, by name: modules or objects with hook implementations.
    """

    def __init__(self, *, installed: bool = True, plugins: Mapping[str, object] | None = None) -> None:
        from tuner.builtin import Builtin

        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self.plugins: list[Plugin] = []
        self.strategies: dict[str, Strategy[Any]] = {}
        self.backends: dict[str, Backend] = {}
        self.objectives: dict[str, Objective] = {}
        self.tasks: dict[str, Callable[[], Task]] = {}
        self._add("core", "core", lambda: Builtin(self))
        for name, plugin in (plugins or {}).items():
            self._add(name, "given", lambda plugin=plugin: plugin)  # type: ignore[misc]  # mypy cannot infer the lambda
        if installed:
            for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
                self._add(point.name, _origin(point), point.load)

    @property
    def refused(self) -> list[Plugin]:
        """Plugins that take no part, with the reason."""
        return [plugin for plugin in self.plugins if plugin.refused]

    def lowerings(self, backend: str) -> dict[str, "Lowering"]:
        """Return how `backend` realises tail edits, by kind; a plugin that raises is logged and offers none.

        Raises:
            PluginError: Two plugins realise the same kind.
        """
        found: dict[str, Lowering] = {}
        givers: dict[str, str] = {}
        for implementation in self._manager.hook.tuner_lowerings.get_hookimpls():
            name = implementation.plugin_name
            arguments = {"backend": backend}
            try:
                function: Callable[..., Any] = implementation.function
                offered = dict(function(*(arguments[one] for one in implementation.argnames)) or {})
            except Exception:  # a plugin may lack a library; edits it does not realise are not supported
                log.warning("plugin %s: tuner_lowerings raised", name, exc_info=True)
                continue
            for kind in offered:
                if kind in givers:
                    raise PluginError(f"plugins {givers[kind]!r} and {name!r} both realise {kind!r}: remove one")
                givers[kind] = name
            found.update(offered)
        return found

    def trial_done(self, study: str, record: "TrialRecord") -> None:
        """Tell every observer; one that raises is logged and does no harm."""
        for implementation in self._manager.hook.tuner_trial_done.get_hookimpls():
            arguments = {"study": study, "record": record}
            try:
                implementation.function(*(arguments[name] for name in implementation.argnames))
            except Exception:  # an observer's bug is not the study's
                log.warning("plugin %s: tuner_trial_done raised", implementation.plugin_name, exc_info=True)

    def backend(self, name: str) -> "Backend":
        """Return a backend.

        Raises:
            PluginError: None has this name.
        """
        return _find("backend", name, self.backends)

    def _add(self, name: str, origin: str, load: Callable[[], object]) -> None:
        """Load one plugin; whatever it does wrong keeps it out, and nothing else."""
        module, reason = "", ""
        taken = self._manager.has_plugin(name)
        try:
            plugin = load()
            module = getattr(plugin, "__name__", type(plugin).__name__)
            self._register(name, plugin)
        except (Exception, SystemExit) as error:  # a plugin's import or hook may raise anything
            reason = str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"
            if origin == "core":
                raise
            if not taken and self._manager.has_plugin(name):
                self._manager.unregister(name=name)
        self.plugins.append(Plugin(name, origin, module, " ".join(reason.split())))

    def _register(self, name: str, plugin: object) -> None:
        if self._manager.has_plugin(name):
            raise PluginError(f"another plugin is called {name!r} already: rename one entry point")
        _check_hooks(name, plugin, self._manager)
        self._manager.register(plugin, name)
        strategies: list[Strategy[Any]] = self._offered(name, "tuner_strategies", Strategy)
        for strategy in strategies:
            _check_strategy(strategy)
        from tuner.backends.base import Backend
        from tuner.results.objectives import Objective

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
        for one in offered:
            if not isinstance(one, kind):
                raise PluginError(f"{hook} returns {kind.__name__} objects, but one is a {type(one).__name__}")
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
    from inspect import signature

    known = tuple(signature(getattr(hookspecs, hook)).parameters)
    for argument in signature(implementation).parameters:
        if argument not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise PluginError(f"{hook} has no argument {argument!r}{nearest(argument, known)}: {takes}")


def _check_strategy(strategy: Strategy[Any]) -> None:
    from tuner.plan import Stage

    name, stage = getattr(strategy, "name", None), getattr(strategy, "stage", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PluginError(f"a strategy's name is an identifier, but {type(strategy).__name__} has {name!r}")
    if not isinstance(stage, Stage):
        raise PluginError(f"strategy {name!r} sets stage to a tuner.Stage, but it has {stage!r}")


def _named(kind: str, offered: Iterable[V]) -> dict[str, V]:
    named: dict[str, V] = {}
    for one in offered:
        name = str(getattr(one, "name", ""))
        if name in named:
            raise PluginError(f"it offers two {kind} objects called {name!r}: rename one")
        named[name] = one
    return named


def _merged(kind: str, plugin: str, known: dict[str, V], offered: Mapping[str, V]) -> dict[str, V]:
    for name in offered:
        if name in known:
            raise PluginError(f"{kind} {name!r} of plugin {plugin!r} has a name that is taken: rename it")
    return {**known, **offered}


def _find(kind: str, name: str, known: Mapping[str, V]) -> V:
    if name not in known:
        raise PluginError(
            f"there is no {kind} {name!r}{nearest(name, known)}; installed: {', '.join(sorted(known))}; "
            "`tuner plugins` says whether one was refused"
        )
    return known[name]


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"


def chosen(kind: str, names: Iterable[str], known: Mapping[str, V]) -> list[V]:
    """Return the named objects in the order asked for.

    Raises:
        PluginError: One is not installed; the nearest is named.
    """
    return [_find(kind, name, known) for name in names]
