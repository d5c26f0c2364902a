"""The host: finds plugins, loads them one at a time, and isolates the broken ones."""

import copy
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, get_args

import pluggy
from pluggy import HookImpl

from tuner.backends.base import Backend
from tuner.backends.extensions import HOOKS, Extensions, What
from tuner.backends.measuring import Measure, measure_of
from tuner.errors import PluginError, TunerError, UsageError
from tuner.machine.awake import CLOCK
from tuner.plan.parts import Optimiser
from tuner.plan.trial import TrialPlan
from tuner.plugin import hookspecs
from tuner.plugin.load.calls import (
    CALL_SECONDS,
    IMPORT_SECONDS,
    OBSERVER_SECONDS,
    PluginCalls,
    fault,
    import_fault,
    limited,
)
from tuner.plugin.load.checks import by_name, check_api, check_hooks, check_strategy, offered_by_name, offered_objects
from tuner.plugin.load.finding import Found, Plugin, select
from tuner.plugin.strategy import Strategy
from tuner.plugin.studies import StudyOpener
from tuner.reading import is_address
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import Objective, objective_from
from tuner.task import Task
from tuner.task.reader import TaskReader

log = logging.getLogger(__name__)
#: Observers that take longer are named once.
SLOW_SECONDS = 1.0
#: Imports that take longer are named.
SLOW_IMPORT_SECONDS = 3.0


class Offer(NamedTuple):
    """What a hook without arguments offers.

    Attributes:
        hook: Name of the hook.
        attribute: Attribute of the host that holds what is offered, by name.
        of: Class of the objects; None for functions.
        what: What is offered by name, for messages; empty for objects that have a name themselves.
    """

    hook: str
    attribute: str
    of: type | None = None
    what: str = ""


#: What a plugin may offer, by kind.
OFFERED: Mapping[str, Offer] = {
    "strategy": Offer("tuner_strategies", "strategies", Strategy),
    "backend": Offer("tuner_backends", "backends", Backend),
    "objective": Offer("tuner_objectives", "objectives", Objective),
    "task": Offer("tuner_tasks", "tasks", None, "tasks"),
    "task file": Offer("tuner_task_files", "task_files", TaskReader, "readers of task files"),
    "study": Offer("tuner_studies", "studies", StudyOpener, "openers of studies"),
}
#: Kinds that no plugin may offer, by hook.
CORE_KINDS: Mapping[str, Sequence[str]] = {"tuner_optimisers": get_args(Optimiser)}


class Host:
    """Everything installed, as typed objects by name; a new host is empty: `tuner.plugin.core.build_host` adds plugins.

    Args:
        end: Clock (`tuner.machine.awake.CLOCK`) at which every call of a plugin must be over; None for never.

    Attributes:
        calls: Calls of the plugins' code in this process.
        plugins: All plugins, in the order they were loaded.
        local: Files of the local plugins, which other processes load too.
        problems: What is wrong with plugins that were loaded, for people.
        tasks: Functions that load built-in tasks.
        task_files: Readers of task files, by the ending of their names.
        studies: Openers of studies that several processes share, by the scheme of their address.
    """

    def __init__(self, end: float | None = None) -> None:
        self.calls = PluginCalls(end)
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._owners: dict[tuple[str, str], str] = {}
        self._realisations: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        self._measures: dict[str, Measure] = {}
        self._slow: set[str] = set()
        self.plugins: list[Plugin] = []
        self.local: list[str] = []
        self.problems: list[str] = []
        self.strategies: dict[str, Strategy[Any]] = {}
        self.backends: dict[str, Backend] = {}
        self.objectives: dict[str, Objective] = {}
        self.tasks: dict[str, Callable[[], Task]] = {}
        self.task_files: dict[str, TaskReader] = {}
        self.studies: dict[str, StudyOpener] = {}

    def add(self, found: Found) -> None:
        """Load one plugin; one that raises is refused, and harms nothing else."""
        if found.file:
            self.local.append(found.file)
        if found.off:
            self.plugins.append(Plugin(found.name, found.origin, "", off=True))
            return
        name, module, reason, seconds = found.name, "", "", 0.0
        taken, started = self._manager.has_plugin(name), time.perf_counter()
        try:
            with limited(self.calls.within(IMPORT_SECONDS)):
                plugin = found.load()
                seconds = time.perf_counter() - started
                module = found.file or getattr(plugin, "__name__", type(plugin).__name__)
                self._register(name, plugin)
            if seconds > SLOW_IMPORT_SECONDS:
                log.warning("plugin %s: its import took %.1f s", name, seconds)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin's import or hook may raise anything
            reason = str(error) if isinstance(error, TunerError) else import_fault(error)
            if not taken and self._manager.has_plugin(name):
                self._manager.unregister(name=name)
                self._realisations = {key: one for key, one in self._realisations.items() if key[0] != name}
        self.plugins.append(
            Plugin(name, found.origin, module, " ".join(reason.split()), seconds, local=bool(found.file))
        )

    def check_local(self) -> None:
        """Require the plugins that the user named; a `PluginError` where one of them was refused."""
        for plugin in self.refused:
            if plugin.local:
                raise PluginError(f"plugin {plugin.name!r} cannot be used: {plugin.refused}")

    @property
    def refused(self) -> list[Plugin]:
        """Refused plugins."""
        return [plugin for plugin in self.plugins if plugin.refused]

    @property
    def unwanted(self) -> tuple[str, ...]:
        """Names of refused plugins, which child processes do not load; not those whose name a loaded one has."""
        loaded = {plugin.name for plugin in self.plugins if not plugin.refused}
        return tuple(plugin.name for plugin in self.refused if plugin.name not in loaded)

    def extensions(self, backend: str) -> Extensions:
        """Return what plugins add to a backend; one whose hook raises, or returns what it may not, adds nothing."""
        collected: dict[str, dict[str, Any]] = {}
        owners: dict[What, tuple[str, ...]] = {}
        further = getattr(self.backends.get(backend), "lowers_as", "")
        names = (further, backend) if further else (backend,)
        for hook, (part, what) in HOOKS.items():
            own = collected[part] = {}
            for implementation in self._implementations(hook):
                offered = dict[str, Any]()
                try:
                    for name in names:
                        offered |= self._realised(hook, implementation, name)
                except PluginError as error:  # of a backend that was loaded after the plugin
                    self.problems.append(f"plugin {implementation.plugin_name}: {error}")
                    continue
                for kind, function in offered.items():
                    own.setdefault(kind, function)
                    owners[what, kind] = tuple(
                        dict.fromkeys((*owners.get((what, kind), ()), implementation.plugin_name))
                    )
        collected["measures"] = {**self._measures, **collected["measures"]}
        return Extensions(**collected, owners=owners)

    def optimisers(self) -> tuple[str, ...]:
        """Return the names of all optimisers: those that every backend has, then those that plugins add to any."""
        added = (name for backend in self.backends for name in self.extensions(backend).optimisers)
        return tuple(dict.fromkeys((*get_args(Optimiser), *added)))

    def clashes(self) -> list[str]:
        """Return for people which plugins realise the same kind of extension; plans that use it are refused."""
        every = [added.clash(what) for added in map(self.extensions, self.backends) for what in added.owners]
        return sorted({clash for clash in every if clash is not None})

    def owner(self, kind: str, name: str) -> str | None:
        """Return the plugin that offers something of a kind: ``strategy``, ``backend``, ``objective`` or ``task``."""
        return self._owners.get((kind, name))

    def is_local(self, kind: str, name: str) -> bool:
        """Return whether a local plugin offers something; arguments as for `owner`."""
        return any(plugin.local and plugin.name == self.owner(kind, name) for plugin in self.plugins)

    def trial_done(self, study: str, record: TrialRecord) -> None:
        """Call every observer with a copy of its own; one that fails does no harm."""
        for implementation in self._implementations("tuner_trial_done"):
            plugin, started = implementation.plugin_name, CLOCK.now()
            if self.calls.is_out(plugin):
                continue
            arguments = {"study": study, "record": copy.deepcopy(record)}
            given = (arguments[name] for name in implementation.argnames)
            with suppress(PluginError):  # it is logged: an observer's bug is not the study's
                self.calls.run(plugin, "tuner_trial_done", OBSERVER_SECONDS, implementation.function, *given)
            seconds = CLOCK.now() - started
            if seconds > SLOW_SECONDS and plugin not in self._slow:
                self._slow.add(plugin)
                log.warning("plugin %s: tuner_trial_done took %.1f s; the study waits for it", plugin, seconds)

    def supports(self, plan: TrialPlan) -> str | None:
        """Return why the plan's backend cannot carry it out, or why that is not known; None where it can."""
        backend = self.backend(plan.runtime.backend)
        plugin = self.owner("backend", backend.name) or "core"
        if plugin == "core":
            return backend.supports(plan)
        try:
            reason: object = self.calls.run(plugin, "supports", CALL_SECONDS, backend.supports, plan)
        except PluginError as error:
            return str(error)
        if reason is None or isinstance(reason, str):
            return reason
        return f"plugin {plugin}: supports must return a reason or None, but it returned a {type(reason).__name__}"

    def backend(self, name: str) -> Backend:
        """Return a backend; a `PluginError` where there is none of this name."""
        return select("backend", [name], self.backends)[0]

    def study(
        self,
        address: str,
        noun: str = "the address of a study",
        way_out: str = "correct it, or give the folder of a run",
    ) -> StudyOpener:
        """Return what opens the study of an address; `noun` says what it is, `way_out` what to do instead.

        Raises:
            UsageError: No plugin opens such studies.
        """
        scheme = re.split("[+:]", address)[0].lower() if is_address(address) else ""
        if scheme in self.studies:
            return self.studies[scheme]
        if not self.studies:
            raise UsageError(
                f"{noun} needs a plugin that opens studies, and none is loaded: see `tuner plugins`, and "
                "TUNER_PLUGINS, which switches plugins off"
            )
        known = ", ".join(f"{one}://" for one in self.studies)
        raise UsageError(f"{noun} must begin with {known}, got {(scheme and f'{scheme}://') or 'none'}: {way_out}")

    def _register(self, name: str, plugin: object) -> None:
        if self._manager.has_plugin(name):
            taken = next(one.origin for one in self.plugins if one.name == name and not one.refused)
            raise PluginError(f"a plugin called {name!r} is loaded already, from {taken}: rename one of them")
        if self._manager.is_registered(plugin):
            raise PluginError(f"its module is loaded already, as plugin {self._manager.get_name(plugin)!r}")
        check_api(plugin)
        check_hooks(name, plugin, self._manager)
        self._manager.register(plugin, name)
        # everything is checked before anything is taken, so that a refused plugin leaves no part of itself
        offered = {kind: self._offered(kind, name) for kind in OFFERED}
        functions = {one: function for one, function in offered["objective"].items() if callable(function)}
        offered["objective"] |= {one: objective_from(function) for one, function in functions.items()}
        measures = {one: measure_of(offered["objective"][one], function) for one, function in functions.items()}
        for backend in (*self.backends, *offered["backend"]):
            for hook in HOOKS:
                for implementation in self._implementations(hook, name):
                    self._realised(hook, implementation, backend)
        self._measures |= measures
        for kind, registered in offered.items():
            for own in registered:
                self._owners.setdefault((kind, own), name)
            getattr(self, OFFERED[kind].attribute).update(registered)

    def _offered(self, kind: str, plugin: str) -> dict[str, Any]:
        """Return what a plugin offers of a kind, by name, if it is that, and no name is taken."""
        offer, found = OFFERED[kind], dict[str, Any]()
        for implementation in self._implementations(offer.hook, plugin):
            returned = implementation.function()
            if offer.what:
                found |= offered_by_name(offer.hook, offer.what, returned, offer.of)
            elif offer.of is not None:
                found |= by_name(kind, offered_objects(offer.hook, returned, offer.of))
        for strategy in found.values() if kind == "strategy" else ():
            check_strategy(strategy)
        for name in found:
            if name in getattr(self, offer.attribute):
                owner = self._owners[kind, name]
                raise PluginError(
                    f"{kind} {name!r} of plugin {plugin!r} has a name that is taken by plugin {owner!r}: rename it"
                )
        return found

    def _realised(self, hook: str, implementation: HookImpl, backend: str) -> Mapping[str, Any]:
        """Return what a plugin adds to a backend by one hook, which is called once for each backend."""
        plugin = implementation.plugin_name
        if (plugin, hook, backend) not in self._realisations:
            self._realisations[plugin, hook, backend] = {}
            try:
                with limited(self.calls.within(CALL_SECONDS)):
                    returned = implementation.function(*(backend for _ in implementation.argnames))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plugin may lack a library; edits it does not realise are not supported
                problem = f"plugin {plugin}: {hook} {fault(error)}"
                if problem not in self.problems:  # the same for each backend
                    log.warning("plugin %s: %s raised", plugin, hook, exc_info=True)
                    self.problems.append(problem)
                return {}
            offered = offered_by_name(hook, HOOKS[hook][0], returned)
            for kind in CORE_KINDS.get(hook, ()):
                if kind in offered:
                    raise PluginError(f"{HOOKS[hook][1]} {kind!r} is the core's own: rename it")
            self._realisations[plugin, hook, backend] = offered
        return self._realisations[plugin, hook, backend]

    def _implementations(self, hook: str, plugin: str | None = None) -> list[HookImpl]:
        """Return the implementations of a hook: of one plugin, or of all in the order they were loaded."""
        found: list[HookImpl] = getattr(self._manager.hook, hook).get_hookimpls()
        return [one for one in found if plugin is None or one.plugin_name == plugin]
