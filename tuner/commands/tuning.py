"""One call of `tuner.run`: the task is opened, the study runs, and what was spent is written."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.backends.base import Session
from tuner.commands.few_samples import few_samples
from tuner.errors import RunError
from tuner.plan.info import ModelInfo
from tuner.plugin.given import given_plans, with_given
from tuner.plugin.host import Host
from tuner.plugin.strategy import Strategy
from tuner.plugin.versions import differences, taking_part
from tuner.results.classes import Classes
from tuner.results.config import RunConfig
from tuner.results.folder import JOURNAL, Identity, RunInfo, Spent, open_records, read_run, write_run
from tuner.results.objectives import Objective
from tuner.results.origin import mark_of
from tuner.results.prior import Prior, newest_run, prior_of, read_prior, remember_run
from tuner.results.run import Run
from tuner.search.listener import FINISHING, LOOKING, Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import RemoteSession
from tuner.search.rates import rates_of
from tuner.search.setting import MEASURING_SHARE, RUN_RESERVE, Setting, cores, strategies_for, wanted_knobs
from tuner.search.space import Space, check_knobs
from tuner.store.disk import StoreFull
from tuner.store.engine_choice import choose_engine
from tuner.store.store import Store, disk_bytes, open_store
from tuner.task.info import TaskOutline
from tuner.units import format_bytes

#: In place of a run: no plan of an earlier one is tried first.
NO_RUN = "none"
#: Parts of an identity whose names say too little.
NAMES = {"folds": "number of folds"}
#: What `RunInfo` holds of the given model: its scores, its predictions by class, and the share of samples.
GIVEN = ("untouched", "untouched_classes", "untouched_share")

if TYPE_CHECKING:
    from tuner.search.study import Study


class Tuning:
    """One call of `run`.

    Args:
        config: What was asked.
        space: The search space.
        task: The task.
        folder: The run's folder.
        listener: Receives progress.
        interrupt: The user's request to stop.
        started: Clock (`time.monotonic`) from which the time counts.
        host: What is installed.
        earlier: A run whose front is tried first, or ``none``; the newest one alike where it is not given.
    """

    def __init__(
        self,
        config: RunConfig,
        space: Space,
        task: TaskOutline,
        folder: Path,
        listener: Listener,
        interrupt: Interrupt,
        started: float,
        host: Host,
        earlier: str | Path | None = None,
    ) -> None:
        self._config, self._space, self._task = config, space, task
        self._folder, self._listener, self._interrupt, self._started = folder, listener, interrupt, started
        self._threads = 1 if config.deterministic else cores()
        self._host = host
        self._identity = Identity(
            task=task.info.fingerprint,
            space=repr(replace(space, limits={})),
            seed=config.seed,
            deterministic=config.deterministic,
            folds=config.folds,
        )
        self._earlier = Spent()
        self._scores: dict[str, Any] = {}
        self._plugins: dict[str, str] = {}
        self._phases: dict[str, float] = {}
        self._from = earlier

    def resume(self) -> None:
        """Take over what earlier sessions spent and measured.

        Raises:
            RunError: They were of another task, space or seed; which, and the way out.
        """
        info = read_run(self._folder)
        changed = [
            NAMES.get(field.name, field.name)
            for field in fields(Identity)
            if getattr(info.identity, field.name) != getattr(self._identity, field.name)
        ]
        if changed:
            raise RunError(
                f"{self._folder} was made with another {' and '.join(changed)}, which --resume cannot change: "
                "give the same, or another --out"
            )
        self._earlier, self._scores = info.spent, {name: getattr(info, name) for name in GIVEN}
        if changed_plugins := differences(self._host, info.plugins):
            self._listener.say(f"warning: {changed_plugins}")

    def tune(
        self,
        store_folder: Path | None,
        sessions: Mapping[str, RemoteSession],
        strategies: Sequence[Strategy[Any]],
        objectives: Sequence[Objective],
        end: float | None,
    ) -> None:
        """Run the study, and write what was spent.

        Args:
            store_folder: The feature store's folder; the user's own where it is not given.
            sessions: The task, opened on each backend; the first measures this device.
            strategies: Strategies that take part.
            objectives: The study's objectives.
            end: Clock (`time.monotonic`) at which the command must be over; None for never.
        """
        store, backends = open_store(store_folder, *self._store_cap()), list(sessions)
        strategies, self._space, left_out = strategies_for(self._task, strategies, self._space)
        for line in (*self._task.notes, *few_samples(self._task, self._config.folds), *left_out):
            self._listener.say(line)
        self._plugins = taking_part(self._host, (strategy.name for strategy in strategies), backends)
        with warnings.catch_warnings():  # in a notebook, on a progress bar that Optuna is not asked for
            warnings.filterwarnings("ignore", "IProgress not found")
            from tuner.search.journal import open_study  # while the child imports its tensor library
        from tuner.search.study import Study

        session = sessions[backends[0]]
        setting = self._setting(session, backends[0], strategies, objectives, end)
        self._choose_engine(store, setting)
        info = self._info(setting)
        write_run(self._folder, info)  # first: a folder with a journal and without run.json is no run
        records = open_records(self._folder, info.template)
        directions = [objective.optuna_direction for objective in objectives]
        journal = open_study(self._folder / JOURNAL, directions, records[-1].trial + 1 if records else 0)

        def untouched(share: float) -> dict[str, float]:
            """Score the given model on a share of the validation samples; `run.json` keeps the largest's scores."""
            nonlocal info
            if info.untouched and info.untouched_share == share:
                return info.untouched
            given = session.untouched(store, self._threads, share=share, folds=self._config.folds if share == 1 else 0)
            if not info.untouched or share > info.untouched_share:
                scores: dict[str, Any] = dict(zip(GIVEN, (given.values, given.classes, share), strict=True))
                info = replace(info, **scores, spent=self._spent(study))
                write_run(self._folder, info)
                self._listener.untouched(given.values, objectives, info.untouched_samples)
            return given.values

        study = Study(
            setting, self._host, journal, records, sessions, store, untouched, self._listener, self._interrupt
        )
        study.prepare()
        if info.untouched:
            self._listener.untouched(info.untouched, objectives, info.untouched_samples)
        self._listener.resumed(study.records)
        try:
            study.run()
            self._listener.phase(FINISHING)
        finally:
            info = replace(info, ended=study.ended or info.ended, spent=self._spent(study))
            write_run(self._folder, info)
        if study.front():
            remember_run(setting.model, self._folder)
        self._listener.say(f"ended: {study.ended}")

    def _setting(
        self,
        session: Session,
        backend: str,
        strategies: Sequence[Strategy[Any]],
        objectives: Sequence[Objective],
        end: float | None,
    ) -> Setting:
        """Return the study's setting.

        Args:
            session: The task on the backend that measures this device.
            backend: Its name.
            strategies: Strategies that take part.
            objectives: The study's objectives.
            end: Clock (`time.monotonic`) at which the command must be over; None for never.
        """
        self._listener.phase(LOOKING)
        config, model, task = self._config, session.model, self._task.info
        strategies = with_given(strategies, self._task.given)
        if model.note:
            self._listener.say(model.note)
        check_knobs(self._space, strategies, model, task)
        started = time.monotonic()
        self._phases["starting"] = started - self._started
        rates = rates_of(
            session,
            backend,
            measure=not config.deterministic,
            within=math.inf if end is None else max(0.0, MEASURING_SHARE * (end - started)),
            listener=self._listener,
        )
        self._phases["measuring"] = time.monotonic() - started
        prior = self._prior(model)
        given = given_plans(strategies)
        return Setting(
            strategies=strategies,
            objectives=objectives,
            wanted=wanted_knobs(self._space, config.backend, deterministic=config.deterministic),
            sampler=self._space.sampler,
            rungs=self._space.rungs,
            seed=config.seed,
            deterministic=config.deterministic,
            model=model,
            task=task,
            rates=rates,
            prior=(*given, *prior.plans),
            same_task=bool(given) or (bool(prior.task) and prior.task == self._identity.task),
            limits=config.limits,
            end=end,
            folder=self._folder,
            folds=config.folds,
        )

    def _prior(self, model: ModelInfo) -> Prior:
        """Return the plans to try first: of the run that was named, of the space's file, of the newest run alike.

        Raises:
            TunerError: What was named cannot be read.
        """
        if self._from == NO_RUN:
            return Prior()
        if self._from is not None:
            return prior_of([Run.open(self._from)])
        if self._space.prior:
            return read_prior(Path(self._space.prior))
        newest = None if self._config.deterministic else newest_run(model)
        if newest is None or newest.folder.absolute() == self._folder.absolute() or not newest.shortlist:
            return Prior()
        self._listener.say(f"starting from the front of {newest.folder} (--from none starts afresh)")
        return prior_of([newest])

    def _choose_engine(self, store: Store, setting: Setting) -> None:
        if not setting.rates.complete:  # the engine holds for good: it is not chosen in haste
            return
        try:
            choose_engine(store, setting.model.fingerprint, self._threads, setting.rates.prefix_kind)
        except StoreFull as error:
            self._listener.say(f"warning: {error}")

    def _info(self, setting: Setting) -> RunInfo:
        """Return the content of ``run.json`` at the start."""
        return RunInfo(
            identity=self._identity,
            config=self._config,
            task_name=self._task.info.name,
            space_name=self._space.name,
            threads=self._threads,
            model=setting.model,
            task=setting.task,
            objectives=tuple(setting.objectives),
            spent=self._spent(None),
            plugins=self._plugins,
            mark=mark_of(self._config),
            classes=Classes.of(self._task),
            **self._scores,
        )

    def _store_cap(self) -> tuple[int | None, str]:
        """Return the bytes that are left to the store, and the limit in words."""
        storage = self._config.limits.storage_bytes
        if storage is None:
            return None, ""
        used = RUN_RESERVE + disk_bytes(self._folder)
        limit = f"--storage {format_bytes(storage)}, of which {format_bytes(used)} are for the run's folder,"
        return max(0, storage - used), limit

    def _spent(self, study: "Study | None") -> Spent:
        seconds = time.monotonic() - self._started
        if study is None:
            return Spent(self._earlier.seconds + seconds)
        phases = {**self._phases, **study.phases}
        phases["other"] = seconds - sum(phases.values())
        earlier = self._earlier.phases
        phases = {name: earlier.get(name, 0.0) + phases.get(name, 0.0) for name in {**earlier, **phases}}
        return Spent(self._earlier.seconds + seconds, study.storage_bytes(), study.filled_samples, phases)
