"""The setting of a study: what does not change while it runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import PluginError, SpaceError
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.plan.info import ModelInfo, TaskInfo
from tuner.plan.parts import Scalar
from tuner.planner.device import Rates
from tuner.plugin.host import Host
from tuner.plugin.knobs import Wanted
from tuner.plugin.load.finding import select
from tuner.plugin.strategy import Strategy
from tuner.results.prior.file import Prior
from tuner.results.records.config import Budget
from tuner.results.records.judging import LOCAL
from tuner.results.scores.objectives import MEASURED, OBJECTIVES, Objective
from tuner.search.space import Space
from tuner.targets.base import ACCURACY
from tuner.task.info import TaskOutline
from tuner.units import format_seconds

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

#: Reserved at the end for writing results.
CLOSING_SECONDS = 0.8
#: Of ``--storage``, for trial records, scales and other small files.
RUN_RESERVE = 2_000_000
#: Measuring the device takes at most this share of the time that is left.
MEASURING_SHARE = 0.1
#: A run that begins measures for so long, or for this share of its time if that is longer: what is not measured is
#: computed from FLOPs and corrected by the first trials, and the next run continues.
FIRST_MEASURING_SECONDS, FIRST_MEASURING_SHARE = 2.5, 0.01
#: The objective that tasks without global data have not.
GLOBAL = "global_accuracy"
CORE_STRATEGIES = ("recipe", "none", "runtime")


@dataclass(slots=True)
class Reserve:
    """Seconds at the end of a run that its trials leave to the refit of the one that is picked; 0 where it has none."""

    seconds: float = 0.0

    def __str__(self) -> str:
        """Say what the end of the time is for; empty where nothing is reserved."""
        return f"the last {format_seconds(self.seconds)} are reserved for the refit" if self.seconds else ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change while a study runs.

    Attributes:
        strategies: Strategies that take part.
        wanted: What the search space and the command line ask of each knob.
        sampler: Name of a sampler, or one of Optuna's objects.
        deterministic: Whether costs come from FLOPs instead of clocks.
        rates: This device's rates on the model.
        limits: The user's limits.
        end: Clock (`tuner.machine.awake.CLOCK`) at which the command must be over; None for never.
        rungs: Whether plans are first tried on lower rungs.
        earlier: Values of knobs of plans to try first.
        same_task: Whether they are of this very task: the first of them then goes to the top rung at once.
        folds: Folds that judge the plans of the top rung; 0 for none.
        has_finals: Whether the best of them are cross-validated, on the final rung.
        portfolio: Prior whose plans are tried first where they suit the task.
        kind: Kind of this device, where the study may run on several.
        refits: Whether the run refits what it picks, in the time that `reserve` keeps; that changes with the pick.
    """

    strategies: Sequence[Strategy[Any]]
    objectives: Sequence[Objective]
    wanted: Mapping[str, Wanted]
    sampler: "str | BaseSampler"
    seed: int
    deterministic: bool
    model: ModelInfo
    task: TaskInfo
    rates: Rates
    limits: Budget
    end: float | None
    folder: Path
    rungs: bool = True
    earlier: tuple[Mapping[str, Scalar], ...] = ()
    same_task: bool = False
    folds: int = 0
    has_finals: bool = False
    portfolio: Prior | None = None
    kind: str = ""
    refits: bool = False
    reserve: Reserve = field(default_factory=Reserve, compare=False)

    @property
    def foreseen(self) -> bool:
        """Whether plans are weighed by the accuracies that they may bring.

        All objectives are then accuracies or costs of training, or those of a search space that names none.
        """
        names = {one.name for one in self.objectives if not one.domain}  # scores, mostly as the accuracies are
        usual = {one.name for one in OBJECTIVES}
        return names <= usual or usual <= names | {GLOBAL} <= {*usual_objectives(self.strategies)}

    @property
    def forgets_all(self) -> bool:
        """Whether the model may forget all that it knew, so that this does not count in what is tried next."""
        return self.limits.forgetting is not None and self.limits.forgetting >= 1.0 and LOCAL in self.objective_names

    def weighed(self, values: Mapping[str, float]) -> Mapping[str, float]:
        """Return the scores that decide what is tried next: without global accuracy, where the model may forget all."""
        return {name: one for name, one in values.items() if name != GLOBAL} if self.forgets_all else values

    @property
    def weighed_objectives(self) -> Sequence[Objective]:
        """The objectives that decide what is tried next; likewise."""
        return [one for one in self.objectives if not (self.forgets_all and one.name == GLOBAL)]

    @property
    def asks_study(self) -> bool:
        """Whether the sampler suggests in turn, from all trials of the study: it keeps what it knows in these."""
        return self.sampler not in {"tpe", "gp", "random"}

    @property
    def objective_names(self) -> tuple[str, ...]:
        """Names of the objectives."""
        return tuple(objective.name for objective in self.objectives)

    @property
    def seconds_left(self) -> float:
        """Seconds that trials may still take, until the command must be over; infinite where it need not."""
        return math.inf if self.end is None else self.end - CLOCK.now() - self.reserve.seconds

    @property
    def trying_seconds(self) -> float:
        """The same, less what closing the run takes."""
        return self.seconds_left - CLOSING_SECONDS


def measuring_seconds(left: float) -> float:
    """Return for how long a run that has so many seconds left may measure the device before its first trial."""
    return max(0.0, min(MEASURING_SHARE * left, max(FIRST_MEASURING_SECONDS, FIRST_MEASURING_SHARE * left)))


def backends_of(host: Host, backend: str | None) -> list[str]:
    """Return the names of the backends that take part: all that are installed, or the only one."""
    return [host.backend(backend).name] if backend else list(host.backends)


def participants(host: Host, space: Space) -> tuple[list[Strategy[Any]], list[Objective]]:
    """Return the strategies and the objectives that a search space asks for.

    The strategies of local plugins take part whatever the space lists: they were asked for by name.
    """
    names = space.strategies
    strategies = list(host.strategies.values())
    if names is not None:
        core = [host.strategies[name] for name in CORE_STRATEGIES]
        asked_for = [name for name in host.strategies if host.is_local("strategy", name) and name not in names]
        others = [*(name for name in names if name not in CORE_STRATEGIES), *asked_for]
        strategies = [*select("strategy", others, host.strategies), *core]
    usual = [name for name in usual_objectives(strategies) if name in host.objectives]
    return strategies, select("objective", space.objectives or usual, host.objectives)


def usual_objectives(strategies: Iterable[Strategy[Any]]) -> tuple[str, ...]:
    """Return the objectives of a search space that names none: those of every study, and what strategies serve."""
    served = (name for strategy in strategies for name in strategy.objectives)
    return tuple(dict.fromkeys([*(one.name for one in OBJECTIVES), *served]))


def check_measured(host: Host, objectives: Sequence[Objective], backends: Sequence[str]) -> None:
    """Require that something measures every objective; a plugin's backend may give any value."""
    if any(host.owner("backend", name) != host.owner("backend", "torch") for name in backends):
        return
    measured = {name for backend in backends for name in host.extensions(backend).measures} | MEASURED
    for one in objectives:
        if one.name not in measured and not one.name.endswith(ACCURACY):  # exits have accuracies of their own
            raise PluginError(
                f"nothing measures objective {one.name!r} of plugin {host.owner('objective', one.name)!r}: "
                "offer a measure of this name by tuner_measures, or leave the objective out of the search space"
            )


def objectives_for(task: TaskOutline, objectives: Sequence[Objective]) -> list[Objective]:
    """Return the objectives that a task has the data for, with the task's score as what is called accuracy.

    Raises:
        SpaceError: None is left, or one is of another kind of labels.
    """
    for one in objectives:
        if one.needs and not getattr(task.targets, one.needs):
            kind = task.targets.labels_noun if one.needs == "has_classes" else "several labels"
            raise SpaceError(f"objective {one.name!r} is not defined where samples have {kind}: leave it out")
    possible = [one for one in objectives if task.info.global_val or not one.needs_global]
    if not possible:
        raise SpaceError(
            "no objective is left: those of the search space need global data, but the task does not have any: "
            "add [global] to the task, or an objective such as local_accuracy to the search space"
        )
    return [one.of(task.targets) for one in possible]


def wanted_knobs(space: Space, backend: str | None, *, deterministic: bool) -> dict[str, Wanted]:
    """Return what the search space and the command line ask of each knob."""
    pinned: dict[str, Wanted] = {"runtime.backend": backend} if backend else {}
    usual: dict[str, Wanted] = {"runtime.precision": "fp32"}  # to quantise takes time: a space asks for it
    if deterministic:
        return {**usual, **space.knobs, **pinned, "runtime.threads": 1}
    return {**usual, "runtime.threads": usable_processors(), **space.knobs, **pinned}
