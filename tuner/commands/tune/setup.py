"""What a run and its preview begin with: options, search space and plugins, checked before the task is opened."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tuner.errors import PluginError, UsageError
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import memory_limit
from tuner.plan.parts import Stage
from tuner.plan.trial import TrialPlan
from tuner.planner.device import Rates
from tuner.plugin.core import build_host, with_given
from tuner.plugin.host import Host
from tuner.plugin.knobs import Knob, Wanted
from tuner.plugin.load.calls import CALL_SECONDS, fault, limited
from tuner.plugin.strategy import Strategy
from tuner.results.records.config import RunRequest, named_objectives
from tuner.results.scores.objectives import Objective
from tuner.search.budget import budget
from tuner.search.estimate.rates import rates_of, with_sizes
from tuner.search.folds import check_folds
from tuner.search.listener import Listener
from tuner.search.processes.remote import RemoteSession
from tuner.search.processes.supervisor import Supervisor
from tuner.search.setting import backends_of, check_measured, participants, wanted_knobs
from tuner.search.space import PLAIN_SAMPLERS, check_knobs, checked_sampler, load_space
from tuner.units import format_bytes

#: Of the time for measuring, what one more size of the input may take.
SIZE_SHARE = 0.25


class RunSetup:
    """What is asked of a run, and what takes part in it.

    Args:
        asked: The options.
        started: Clock (`tuner.machine.awake.CLOCK`) from which the time counts; now where it is not given.
        least_seconds: Time that the command has at least, if it is limited.

    Attributes:
        limits: The user's limits, else the search space's.
        folds: Folds that judge the plans of the top rung; 0 for none.
        end: Clock at which the command must be over; None for never.
        host: What is installed, once `install` has loaded it.
        supervisor: What has loaded the libraries already, to choose the task's model; None without such a choice.
        strategies: Strategies that take part, once `choose` has found them; the objectives likewise.
    """

    host: Host
    strategies: Sequence[Strategy[Any]]
    objectives: Sequence[Objective]

    def __init__(self, asked: RunRequest, started: float | None = None, least_seconds: float = 0.0) -> None:
        self.asked, self.space = asked, load_space(asked.space)
        self._functions, self.sampler = list[str](), self.space.sampler if asked.sampler is None else asked.sampler
        self.space = replace(self.space, sampler=checked_sampler(self.sampler))
        if asked.objectives is not None:
            named = named_objectives(asked.objectives)
            self._functions = [file for _, file in named if file]
            self.space = replace(self.space, objectives=tuple(name for name, _ in named))
        self.limits, self.folds = budget(asked, self.space.limits), check_folds(asked.folds)
        self.started = CLOCK.now() if started is None else started
        seconds = self.limits.time_seconds
        self.end = None if seconds is None else self.started + max(seconds, least_seconds)
        self.supervisor: Supervisor | None = None

    def install(self, recorded: Iterable[str] = ()) -> None:
        """Load what is installed, and the local plugins: of the search space, of the user, and `recorded` ones.

        Raises:
            PluginError: One that the user named cannot be used.
        """
        self.host = build_host(
            local=[*recorded, *self.space.plugins, *self.asked.plugins, *self._functions], end=self.end
        )
        self.host.check_local()

    def close(self) -> None:
        """End what was started for the run."""
        if self.supervisor is not None:
            self.supervisor.close()

    def choose(self) -> None:
        """Find what takes part; what is asked for must be installed, and something must measure each objective."""
        self.strategies, self.objectives = participants(self.host, self.space)
        check_measured(self.host, self.objectives, self.backends)
        if self.sampler not in PLAIN_SAMPLERS:
            from tuner.search.trials.samplers import check_sampler

            check_sampler(self.sampler, [one.optuna_direction for one in self.objectives])

    @property
    def memory_note(self) -> str:
        """What is said where the control group limits the memory, and the user does not; empty elsewhere."""
        limit, own = memory_limit(), self.limits.memory_bytes
        if own is None or limit is None or self.asked.memory is not None or "memory" in self.space.limits:
            return ""
        return (
            f"memory: {format_bytes(own)} for each trial, what the control group leaves of its {format_bytes(limit)} "
            "(--memory gives another limit)"
        )

    @property
    def backends(self) -> list[str]:
        """Names of the backends that take part; the first measures this device."""
        return backends_of(self.host, self.asked.backend)

    @property
    def wanted(self) -> dict[str, Wanted]:
        """What the search space and the command line ask of each knob."""
        return wanted_knobs(self.space, self.asked.backend, deterministic=self.asked.deterministic)

    def strategies_for(self, session: RemoteSession) -> tuple[Sequence[Strategy[Any]], dict[str, Knob]]:
        """Return the strategies for an opened task, with what it prescribes, and their knobs.

        Where plans may ask for another size of the input, the model is looked at with these first.
        """
        strategies = with_given(self.strategies, session.task.given)
        if sizes := further_sizes(strategies, session.task.input.size or 0, self.space.knobs):
            session.sized(sizes)
        return strategies, check_knobs(self.space, strategies, session.model, session.task.info)

    def rates(self, session: RemoteSession, within: float, listener: Listener | None = None) -> Rates:
        """Return this device's rates, measured for so many seconds; of a deterministic run, computed from FLOPs."""
        measure, name, model, info = not self.asked.deterministic, self.backends[0], session.model, session.task.info
        rates = rates_of(session, name, measure=measure, within=within, listener=listener)
        taken = [TrialPlan(model.at(one.size), info, size=one.size) for one in model.sizes if one.blocks]
        return with_sizes(rates, session, name, taken, measure=measure, within=SIZE_SHARE * within) if taken else rates


def further_sizes(
    strategies: Iterable[Strategy[Any]], own: int, wanted: Mapping[str, Wanted] = MappingProxyType({})
) -> list[int]:
    """Return the sizes of the input, other than the task's own, that plans may ask for, the largest first.

    Those that a search space wants of a strategy that decides the size take the place of the strategy's.

    Raises:
        PluginError: A strategy raised an exception.
    """
    found = set[int]()
    for strategy in strategies:
        try:
            with limited(CALL_SECONDS):
                found.update(_wanted_sizes(strategy, wanted) or map(int, strategy.sizes(own)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(f"strategy {strategy.name!r}: sizes {fault(error)}") from error
    return sorted(found - {own}, reverse=True)


def _wanted_sizes(strategy: Strategy[Any], wanted: Mapping[str, Wanted]) -> list[int]:
    """Return the sizes that a search space lists for a strategy that decides the size; none for others."""
    if strategy.stage is not Stage.SIZE:
        return []
    named = (value for name, value in wanted.items() if name.partition(".")[0] == strategy.name)
    values = (one for value in named for one in (value if isinstance(value, tuple) else (value,)))
    return [one for one in values if type(one) is int and one > 0]


def check_study(host: Host, asked: RunRequest) -> str:
    """Return the address of the study that a run is a worker of, without a password; empty for a run of its own.

    Raises:
        UsageError: No plugin opens it, the artifacts cannot be there, or the run is to be repeatable.
    """
    study, artifacts = asked.study, asked.artifacts
    if study is None:
        if artifacts is not None:
            raise UsageError(
                "--artifacts is where the workers of a study put weights: give --study too, or leave it out"
            )
        return ""
    if asked.sampler is not None and not isinstance(asked.sampler, str):
        raise UsageError("sampler: an object is of this process, and --study of several: name a sampler, such as 'gp'")
    if asked.deterministic:
        raise UsageError("--deterministic runs have one worker, and --study several: leave one of them out")
    alone = "a study in a run folder needs no address, give --out"
    return host.study(study, "--study", alone).check(study, artifacts)
