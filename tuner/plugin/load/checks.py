"""What the host requires of a plugin before it takes anything of it."""

from collections.abc import Iterable, Mapping
from inspect import getmembers, isfunction, signature
from typing import Any, TypeVar

import pluggy

from tuner.errors import PluginError, nearest
from tuner.plan.parts import SHARED_STAGES, Stage
from tuner.plugin import hookspecs
from tuner.plugin.strategy import Strategy
from tuner.results.scores.objectives import Objective

V = TypeVar("V")
#: Stages whose knobs (``shape.by``) would be those of a strategy that is called so; of the other three, ours are.
_STAGES = {*Stage} - {Stage.CACHE, Stage.RECIPE, Stage.RUNTIME}


def check_api(plugin: object) -> None:
    """Refuse a plugin that was written for a later interface; one without ``TUNER_API`` is of the first."""
    wanted = getattr(plugin, "TUNER_API", 1)
    if type(wanted) is not int or wanted < 1:
        raise PluginError(f"TUNER_API must be a whole number from 1 to {hookspecs.API}, got {wanted!r}")
    if wanted > hookspecs.API:
        raise PluginError(
            f"it needs TUNER_API {wanted}, but this tuner has {hookspecs.API}: update tuner, or install an earlier "
            "version of the plugin"
        )


def check_hooks(name: str, plugin: object, manager: pluggy.PluginManager) -> None:
    """Name a misspelt hook or argument: pluggy would ignore an unmarked one and stop at a marked one."""
    known = {hook for hook in vars(hookspecs) if hook.startswith("tuner_")}
    for hook, member in getmembers(plugin, callable):
        marked = hook != "hookimpl" and manager.parse_hookimpl_opts(plugin, hook) is not None
        if hook not in known and (marked or hook.startswith("tuner_")):
            raise PluginError(f"there is no hook {hook!r}{nearest(hook, known)}")
        if hook not in known:
            continue
        if not marked:
            raise PluginError(f"{hook} is not marked: put @tuner.hookimpl above it in plugin {name!r}")
        takes = list(signature(getattr(hookspecs, hook)).parameters)
        for argument in signature(member).parameters:
            if argument not in takes:
                way_out = f"it takes {', '.join(takes) or 'no argument'}"
                raise PluginError(f"{hook} has no argument {argument!r}{nearest(argument, takes)}: {way_out}")


def check_strategy(strategy: Strategy[Any]) -> None:
    """Require a strategy's name, an identifier, its stage, and the types of what else its class says."""
    name, stage = getattr(strategy, "name", None), getattr(strategy, "stage", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PluginError(f"a strategy's name must be an identifier, but {type(strategy).__name__} has {name!r}")
    if name in _STAGES:
        raise PluginError(f"strategy {name!r} must not have the name of a stage, whose knob is {name}.by: rename it")
    if not isinstance(stage, Stage):
        raise PluginError(f"strategy {name!r} must set stage to a tuner.plugin.Stage, got {stage!r}")
    for attribute, kind, rule in (
        ("writes", Stage, "a set of stages that several strategies share"),
        ("refines", Stage, "a set of stages"),
        ("excludes", str, "a set of names, or a mapping of names to reasons"),
        ("after", str, "a set of names"),
    ):
        value = getattr(strategy, attribute)
        if attribute == "excludes" and isinstance(value, Mapping):
            value = {*value}
        fine = isinstance(value, set | frozenset) and all(isinstance(one, kind) for one in value)
        if not fine or (attribute == "writes" and not value <= SHARED_STAGES):
            raise PluginError(f"strategy {name!r} must set {attribute} to {rule}, got {value!r}")


def check_returned(hook: str, what: str, returned: object) -> None:
    """Refuse None from a hook that returns something: a forgotten ``return``."""
    if returned is None:
        raise PluginError(f"{hook} must return {what}, but it returned None: is its `return` missing?")


def offered_objects(hook: str, returned: object, kind: type) -> list[Any]:
    """Return what a hook offers, a list of objects of one class, and nothing else."""
    check_returned(hook, f"a list of {kind.__name__} objects", returned)
    if not isinstance(returned, Iterable):
        raise PluginError(f"{hook} returns a list of {kind.__name__} objects, but it returned {returned!r}")
    offered = list(returned)
    for item in offered:
        if isinstance(item, type) and issubclass(item, kind):
            raise PluginError(
                f"{hook} returns {kind.__name__} objects, but one is the class {item.__name__}: "
                f"give an instance: {item.__name__}()"
            )
        if not isinstance(item, kind) and not (kind is Objective and isfunction(item)):
            raise PluginError(f"{hook} returns {kind.__name__} objects, but one is a {type(item).__name__}")
    return offered


def offered_by_name(hook: str, what: str, returned: object, kind: type | None = None) -> dict[str, Any]:
    """Return what a hook offers by name: functions, or objects of one class. `what` they are is for messages."""
    check_returned(hook, f"{what} by name", returned)
    if not isinstance(returned, Mapping):
        raise PluginError(f"{hook} returns {what} by name, but it returned a {type(returned).__name__}")
    for name, offered in returned.items():
        if not isinstance(name, str) or not (callable(offered) if kind is None else isinstance(offered, kind)):
            raise PluginError(f"{hook} returns {what} by name, but {name!r} is {offered!r}")
    return dict(returned)


def by_name(kind: str, offered: Iterable[V]) -> dict[str, V]:
    """Return objects by their names; no two may have one."""
    named: dict[str, V] = {}
    for item in offered:
        name = str(getattr(item, "name", getattr(item, "__name__", "")))
        if name in named:
            raise PluginError(f"it offers two {kind} objects called {name!r}: rename one")
        named[name] = item
    return named
