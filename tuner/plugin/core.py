"""The core's own plugin, the host that has it, and which plugins took part in a run or a plan."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from tuner.backends.base import Backend
from tuner.backends.onnxruntime import OrtBackend
from tuner.backends.torch.backend import TorchBackend
from tuner.errors import PlanError, PluginError
from tuner.machine.control_group import usable_processors
from tuner.plan.info import ModelInfo
from tuner.plan.parts import CachePlan, Optimiser, Precision, RecipePlan, RuntimePlan, Scalar, Schedule, Stage
from tuner.plan.trial import TrialPlan
from tuner.plugin.hookspecs import hookimpl
from tuner.plugin.host import Host
from tuner.plugin.knobs import Draw
from tuner.plugin.load.finding import Found, installed_plugins, local_plugin
from tuner.plugin.strategy import Strategy
from tuner.results.scores.objectives import BUNDLE_BYTES, OBJECTIVES, Objective
from tuner.task import Task
from tuner.task.builtin import digits
from tuner.task.file.load import READERS, open_task
from tuner.task.reader import DefaultsOf, TaskReader, nobody_says
from tuner.task.task import GivenTraining

#: Name of the strategy of the training that a task asks for.
GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Recipe(Strategy[RecipePlan]):
    """How the tail trains: the knobs every training loop has; `optimisers` returns the names of those installed."""

    optimisers: Callable[[], Sequence[str]] = lambda: get_args(Optimiser)
    name, stage = "recipe", Stage.RECIPE

    def sample(self, draw: Draw, model: ModelInfo) -> RecipePlan:  # noqa: ARG002 - the same for every model
        """Draw the recipe."""
        return RecipePlan(
            epochs=draw.integer("epochs", 1, 200, log=True, start=8),
            batch_size=draw.integer("batch_size", 1, 512, log=True, start=32),
            optimiser=draw.choice("optimiser", self.optimisers(), start="adamw"),
            learning_rate=draw.number("learning_rate", 1e-6, 1.0, log=True, start=1e-3),
            weight_decay=draw.number("weight_decay", 0.0, 0.1),
            schedule=draw.choice("schedule", get_args(Schedule), start="warmup"),
            patience=draw.integer("patience", 0, 50, start=0),
            freeze_bn=draw.choice("freeze_bn", (True, False)),
            micro_batches=draw.choice("micro_batches", (1, 2, 4, 8)),
            label_smoothing=draw.number("label_smoothing", 0.0, 0.3, start=0.1),
            solve_again=draw.choice("solve_again", (True, False)),
            clip=draw.number("clip", 0.0, 100.0, start=0.0, usual=(0.0,)),
        )

    def apply(self, plan: TrialPlan, knobs: RecipePlan) -> TrialPlan:
        """Set the recipe."""
        return replace(plan, recipe=knobs)


class SingleStage(Strategy[float]):
    """Store nothing: the prefix runs in every epoch, on augmented inputs. The papers' baseline."""

    name, stage, baseline = "none", Stage.CACHE, True

    def sample(self, draw: Draw, model: ModelInfo) -> float:  # noqa: ARG002 - the same for every model
        """Draw the strength of augmentation."""
        return draw.number("augment", 0.0, 1.0, start=0.0)

    def apply(self, plan: TrialPlan, knobs: float) -> TrialPlan:
        """Set the strength."""
        return replace(plan, cache=CachePlan(augment=knobs))


@dataclass(frozen=True, slots=True)
class Runtime(Strategy[RuntimePlan]):
    """What carries the plan out; `backends` returns the names of those installed when a plan is composed."""

    backends: Callable[[], Sequence[str]]
    most_threads: int = field(default_factory=usable_processors)  # once: it is read from files
    name, stage = "runtime", Stage.RUNTIME

    def sample(self, draw: Draw, model: ModelInfo) -> RuntimePlan:  # noqa: ARG002 - the same for every model
        """Draw backend, threads and precision."""
        return RuntimePlan(
            backend=draw.choice("backend", self.backends()),
            threads=draw.integer("threads", 1, self.most_threads),
            precision=draw.choice("precision", get_args(Precision), start="fp32"),
            int8_loss=1.0,  # the trial itself measures what int8 costs: its own accuracy
        )

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same of every model
        """Return the start values in 8 bits: where a search space does not ask for that, these are the start values."""
        return ({"runtime.precision": "int8"},)

    def apply(self, plan: TrialPlan, knobs: RuntimePlan) -> TrialPlan:
        """Set the runtime."""
        return replace(plan, runtime=knobs)


def with_given(strategies: Sequence[Strategy[Any]], training: GivenTraining | None) -> list[Strategy[Any]]:
    """Return the strategies, and one for the training that a task asks for, if any, which is tried first.

    It is added where another strategy decides the cut in all other plans.
    """
    if training is None or not any(strategy.stage is Stage.SPLIT for strategy in strategies):
        return list(strategies)
    later = {Stage.SHAPE, Stage.HEADS, Stage.LOSS}
    reason = "the task prescribes its training"
    others = {strategy.name: reason for strategy in strategies if strategy.stage in later}
    asked = training

    class Given(Strategy[None]):
        """The cut and the recipe that the task asks for: nothing is stored, and nothing is added."""

        name, stage, baseline = GIVEN, Stage.SPLIT, True
        refines = frozenset({Stage.CACHE, Stage.RECIPE})
        excludes = others

        def sample(self, draw: Draw, model: ModelInfo) -> None:
            """Draw nothing."""

        def apply(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - there are none
            """Freeze the first blocks, those that the task leaves alone."""
            return replace(plan, split=_cut(plan.model, asked.frozen_parameters))

        def refine(self, plan: TrialPlan, knobs: None) -> TrialPlan:  # noqa: ARG002 - there are none
            """Set the recipe."""
            return replace(plan, recipe=asked.recipe, cache=CachePlan())

    return [*strategies, Given()]


def given_plans(strategies: Sequence[Strategy[Any]]) -> tuple[Mapping[str, Scalar], ...]:
    """Return what a task asks for as values of knobs; nothing where `with_given` added nothing."""
    return ({f"{Stage.SPLIT}.by": GIVEN},) if any(strategy.name == GIVEN for strategy in strategies) else ()


def _cut(model: ModelInfo, frozen: int) -> int:
    """Return the first block that trains, where the first ones with so many parameters do not."""
    totals = list(accumulate((block.parameters for block in model.blocks), initial=0))
    if frozen not in totals:
        raise PlanError(f"plan: split: the {frozen:,} parameters that are to be frozen end within a block of the model")
    return totals.index(frozen)


class Builtin:
    """The core's own plugin."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @hookimpl
    def tuner_strategies(self) -> Iterable[Strategy[Any]]:
        """Offer recipe, single-stage training and runtime."""
        return [Recipe(cache(self._host.optimisers)), SingleStage(), Runtime(lambda: tuple(self._host.backends))]

    @hookimpl
    def tuner_backends(self) -> Iterable[Backend]:
        """Offer PyTorch and ONNX Runtime."""
        return [TorchBackend(), OrtBackend()]

    @hookimpl
    def tuner_objectives(self) -> Iterable[Objective]:
        """Offer accuracy, time and memory, and the size of the bundle."""
        return (*OBJECTIVES, BUNDLE_BYTES)

    @hookimpl
    def tuner_tasks(self) -> Mapping[str, Callable[[], Task]]:
        """Offer the digits."""
        return {"digits": digits}

    @hookimpl
    def tuner_task_files(self) -> Mapping[str, TaskReader]:
        """Offer the reader of task files."""
        return READERS


def build_host(
    plugins: Mapping[str, object] | None = None,
    *,
    local: Iterable[str | Path | ModuleType] = (),
    installed: bool = True,
    refused: Collection[str] = (),
    end: float | None = None,
) -> Host:
    """Return a host: with the core's own plugin, then the first-party ones, those given, and all others.

    A name belongs to whoever loads first: no third party takes one of ours, and a local plugin is used instead of an
    installed one of its name.

    Args:
        plugins: Modules or objects with hook implementations, by name.
        local: Plugins that the user named: Python files, or modules, which other processes load from their files.
        installed: Whether installed packages are searched for plugins.
        refused: Names of plugins that another process refused: they are not loaded.
        end: Clock (`tuner.machine.awake.CLOCK`) at which every call of a plugin must be over; None for never.
    """
    host = Host(end)
    host.add(Found("core", "core", lambda: Builtin(host)))
    if host.refused:
        raise PluginError(f"the core's own plugin cannot be used: {host.refused[0].refused}")
    ours, others = installed_plugins() if installed else ([], [])
    given = [Found(name, "given", lambda plugin=plugin: plugin) for name, plugin in (plugins or {}).items()]  # type: ignore[misc]  # mypy cannot infer the lambda
    named = {os.path.realpath(found.file): found for found in map(local_plugin, local)}
    for found in (*ours, *given, *named.values(), *others):
        if found.name not in refused:
            host.add(found)
    return host


def load_task(text: str | os.PathLike[str], *, look: bool = True, defaults_of: DefaultsOf = nobody_says) -> Task:
    """Load the task that a user names, of all that is installed.

    Args:
        text: Path of a ``task.toml`` or its folder, or of another file that a plugin reads; ``file.py:function``; or a
            built-in's name.
        look: Whether to look at every file of samples that a task file lists.
        defaults_of: Gives what ``[input]`` leaves out, for images of a published model; a run asks its backend.

    Raises:
        TaskError: Nothing has that name, or it cannot be used; one line with the reason.
    """
    host = build_host()
    return open_task(os.fspath(text), host.tasks, host.task_files, look=look, defaults_of=defaults_of)


def taking_part(host: Host, strategies: Iterable[str], backends: Iterable[str]) -> dict[str, str]:
    """Return the origins of the plugins that offer these strategies and backends, by the plugins' names."""
    offered = [("strategy", name) for name in strategies] + [("backend", name) for name in backends]
    return _origins(host, (host.owner(kind, name) for kind, name in offered))


def trained_by(host: Host, plan: TrialPlan, knobs: Iterable[str]) -> dict[str, str]:
    """Return the origins of the plugins that drew a plan's knobs or realise its edits, by the plugins' names."""
    backend = plan.runtime.backend
    added = host.extensions(backend)
    realised = {owner for what in added.kinds(plan) for owner in added.owners.get(what, ())}
    strategies = {name.partition(".")[0] for name in knobs}
    return taking_part(host, strategies, [backend]) | _origins(host, realised)


def differences(host: Host, recorded: Mapping[str, str]) -> str:
    """Return for people which plugins are not those whose origins were recorded; empty where all are."""
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
