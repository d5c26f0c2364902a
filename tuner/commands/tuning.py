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
from tuner.commands.sharing import check_same, kinds_of, open_queue, share_spent, share_untouched
from tuner.commands.spending import spent_so_far, store_cap
from tuner.errors import RunError
from tuner.plan.info import ModelInfo
from tuner.plugin.given import given_plans, with_given
from tuner.plugin.host import Host
from tuner.plugin.strategy import Strategy
from tuner.plugin.versions import differences, taking_part
from tuner.processors import usable_processors
from tuner.results.classes import Classes
from tuner.results.config import RunConfig
from tuner.results.earlier import Earlier, earlier_plans, newest_run, remember_run
from tuner.results.folder import Identity, RunInfo, Spent, read_run, write_run
from tuner.results.likeness import device_kind
from tuner.results.objectives import Objective
from tuner.results.origin import mark_of
from tuner.results.prior import Prior
from tuner.results.run import Run
from tuner.search.listener import FINISHING, LOOKING, Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import RemoteSession
from tuner.search.rates import rates_of
from tuner.search.setting import Setting, measuring_seconds, wanted_knobs
from tuner.search.space import Space, check_knobs
from tuner.store.disk import StoreFull
from tuner.store.engine_choice import choose_engine
from tuner.store.store import Store, open_store
from tuner.task.info import TaskOutline

#: In place of a run: no plan of an earlier one is tried first.
NO_RUN = "none"
#: Parts of an identity whose names say too little.
NAMES = {"folds": "number of folds"}
#: What `RunInfo` holds of the given model: its scores, its predictions by class, and the share of samples.
GIVEN = ("untouched", "untouched_classes", "untouched_share")

if TYPE_CHECKING:
    from tuner.search.shared.joining import SharedStudy
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
        prior: Plans of which those that suit the task are tried first.
        shared: The study that this run is a worker of; None for a run of its own.
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
        prior: Prior | None = None,
        shared: "SharedStudy | None" = None,
    ) -> None:
        self._config, self._space, self._task = config, space, task
        self._folder, self._listener, self._interrupt, self._started = folder, listener, interrupt, started
        self._threads = 1 if config.deterministic else usable_processors()
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
        self._from, self._prior, self._shared, self._worker = earlier, prior, shared, ""

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
        if self._config.study != info.config.study:
            of = f"of --study {info.config.study}" if info.config.study else "a run of its own, without --study"
            raise RunError(f"{self._folder} is {of}, which --resume cannot change: give the same, or another --out")
        self._worker = info.worker
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
        store, backends = open_store(store_folder, *store_cap(self._config, self._folder)), list(sessions)
        for line in (*self._task.notes, *few_samples(self._task, self._config.folds)):
            self._listener.say(line)
        self._plugins = taking_part(self._host, (strategy.name for strategy in strategies), backends)
        with warnings.catch_warnings():  # in a notebook, on a progress bar that Optuna is not asked for
            warnings.filterwarnings("ignore", "IProgress not found")
            from tuner.search.study import Study  # while the child imports its tensor library

        session, shared = sessions[backends[0]], self._shared
        check_same(shared, self._identity, session.model, objectives)
        setting = self._setting(session, backends[0], strategies, objectives, end)
        self._choose_engine(store, setting)
        info = self._info(setting)
        write_run(self._folder, info)  # first: a folder with a journal and without run.json is no run
        queue, info = open_queue(shared, setting, info)

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
                share_untouched(shared, scores)
                self._listener.untouched(given.values, objectives, info.untouched_samples)
            return given.values

        study = Study(setting, self._host, queue, sessions, store, untouched, self._listener, self._interrupt)
        study.prepare()
        if info.untouched:
            self._listener.untouched(info.untouched, objectives, info.untouched_samples)
        self._listener.resumed(study.records)
        try:
            study.run()
            self._listener.phase(FINISHING)
        finally:
            info = replace(info, ended=study.ended or info.ended, spent=self._spent(study), kinds=kinds_of(shared))
            write_run(self._folder, info)
            store.close()
            share_spent(shared, info)
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
            within=math.inf if end is None else measuring_seconds(end - started),
            listener=self._listener,
        )
        self._phases["measuring"] = time.monotonic() - started
        earlier = self._plans_of_run(model)
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
            earlier=(*given, *earlier.plans),
            same_task=bool(given) or (bool(earlier.task) and earlier.task == self._identity.task),
            portfolio=self._prior,
            limits=config.limits,
            end=end,
            folder=self._folder,
            folds=config.folds,
            kind="" if self._shared is None else self._shared.kind,
        )

    def _plans_of_run(self, model: ModelInfo) -> Earlier:
        """Return plans of a run to try first: of the one that was named; without a prior, of the newest run alike.

        Raises:
            TunerError: What was named cannot be read.
        """
        if self._from == NO_RUN:
            return Earlier()
        if self._from is not None:
            return earlier_plans(Run.open(self._from))
        if self._shared is not None or self._config.deterministic or self._prior:
            return Earlier()
        newest = newest_run(model)
        if newest is None or newest.folder.absolute() == self._folder.absolute() or not newest.shortlist:
            return Earlier()
        self._listener.say(f"starting from the front of {newest.folder} (--from none starts afresh)")
        return earlier_plans(newest)

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
            device=device_kind(),
            worker=self._worker,
            **self._scores,
        )

    def _spent(self, study: "Study | None") -> Spent:
        seconds = 0.0 if self._shared is None else self._shared.seconds
        return spent_so_far(self._earlier, self._started, self._phases, study, seconds)
