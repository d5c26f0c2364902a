"""Tune a task: run a study in a folder, within limits."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tuner.backends.base import Session
from tuner.commands.interruption import stopping
from tuner.errors import RunError
from tuner.plugin.core import build_host
from tuner.plugin.strategy import Strategy
from tuner.results.config import RunConfig
from tuner.results.folder import JOURNAL, Identity, RunInfo, Spent, open_records, read_run, write_run
from tuner.results.lock import lock_folder
from tuner.results.objectives import Objective
from tuner.results.run import Run
from tuner.search.budget import budget
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import open_remote
from tuner.search.rates import rates_of
from tuner.search.setting import RUN_RESERVE, Setting, cores, participants, wanted_knobs
from tuner.search.space import Space, check_knobs, load_space
from tuner.store.disk import StoreFull
from tuner.store.engine_choice import choose_engine
from tuner.store.store import Store, disk_bytes, open_store
from tuner.task import Task, load_task
from tuner.task.info import task_info
from tuner.units import format_bytes

if TYPE_CHECKING:
    from tuner.search.study import Study

DEFAULT_SPACE = "board-10min"


def run(
    task: str | Task,
    *,
    space: str = DEFAULT_SPACE,
    time: str | None = None,
    train_time: str | None = None,
    memory: str | None = None,
    storage: str | None = None,
    trials: int | None = None,
    backend: str | None = None,
    seed: int = 0,
    deterministic: bool = False,
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    started: float | None = None,
) -> Run:
    """Tune a task within limits: try plans by training them, and keep the Pareto front.

    Limits are text, as on the command line; one that is not given is the search space's.

    Args:
        task: A ``task.toml``, a ``file.py:function``, the name of a built-in task, or a task.
        space: Name or file of a search space.
        time: Limit on the whole call, such as ``"10m"``.
        train_time: Limit on a result's training time, filling an empty feature store included.
        memory: Limit on the memory that a trial adds to its process, such as ``"512MB"``.
        storage: Limit on stored features and the run folder together.
        trials: Limit on the number of trials.
        backend: The only backend to use; any that is installed where it is not given.
        seed: The study's seed: the same seed suggests the same plans.
        deterministic: Whether to use one thread and costs from FLOPs instead of clocks, so that a resumed run equals
            an undisturbed one.
        out: The run's folder; by default ``runs/TASK``.
        store: The feature store's folder; by default in the user's cache.
        resume: Whether to continue the run in `out`, if there is one.
        listener: Receives progress.
        started: Clock (`time.monotonic`) from which `time` counts; now where it is not given.

    Returns:
        The run, as `Run.open` reads it from its folder.

    Raises:
        TunerError: The task, the space, a limit or the folder cannot be used as asked.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    texts = {"time": time, "train-time": train_time, "memory": memory, "storage": storage, "trials": trials}
    search_space = load_space(space)
    limits = budget(texts, search_space.limits, deterministic=deterministic)
    loaded = load_task(task, build_host().tasks) if isinstance(task, str) else task
    folder = Path(out) if out is not None else Path("runs") / loaded.name
    config = RunConfig(
        task=_absolute(task),
        space=space,
        seed=seed,
        backend=backend,
        deterministic=deterministic,
        limits=limits,
    )
    listener = listener or Listener()
    with ExitStack() as stack:
        stack.callback(listener.close)
        tuning = _Tuning(config, search_space, loaded, task, folder, listener, started)
        if stack.enter_context(lock_folder(folder, resume=resume)):
            tuning.resume()
        tuning.tune(Path(store) if store is not None else None)
    return Run.open(folder, None if isinstance(task, str) else task)


def process_started() -> float:
    """Return the clock (`time.monotonic`) at which this process began."""
    return time.monotonic() - (time.time() - float(psutil.Process().create_time()))


class _Tuning:
    """One call of `run`.

    Args:
        config: What was asked.
        space: The search space.
        task: The task.
        source: The task as another process opens it: the text that names it, or the task itself.
        folder: The run's folder.
        listener: Receives progress.
        started: Clock (`time.monotonic`) from which the time counts; now where it is not given.
    """

    def __init__(
        self,
        config: RunConfig,
        space: Space,
        task: Task,
        source: str | Task,
        folder: Path,
        listener: Listener,
        started: float | None,
    ) -> None:
        self._config, self._space, self._task, self._source = config, space, task, source
        self._folder, self._listener = folder, listener
        self._started = started if started is not None else time.monotonic()
        self._threads = 1 if config.deterministic else cores()
        self._host = build_host()
        self._interrupt = Interrupt()
        self._identity = Identity(
            task=task.fingerprint(),
            space=repr(replace(space, limits={})),
            seed=config.seed,
            deterministic=config.deterministic,
        )
        self._earlier = Spent()
        self._untouched: dict[str, float] = {}

    def resume(self) -> None:
        """Take over what earlier sessions spent and measured.

        Raises:
            RunError: They were of another task, space or seed; which, and the way out.
        """
        info = read_run(self._folder)
        changed = [
            field.name
            for field in fields(Identity)
            if getattr(info.identity, field.name) != getattr(self._identity, field.name)
        ]
        if changed:
            raise RunError(
                f"{self._folder} was made with another {' and '.join(changed)}, which --resume cannot change: "
                "give the same, or another --out"
            )
        self._earlier, self._untouched = info.spent, info.untouched

    def tune(self, store_folder: Path | None) -> None:
        """Open the task on its backends, run the study, and write what was spent."""
        store = open_store(store_folder, *self._store_cap())
        strategies, objectives, backends = participants(self._host, self._space, self._task, self._config.backend)
        limit = self._config.limits.time_seconds
        end = None if limit is None else self._started + limit
        with (
            stopping(self._interrupt),
            open_remote(
                self._host, self._source, backends, interrupt=self._interrupt, kill_at=end, many_jobs=True
            ) as sessions,
        ):
            from tuner.search.journal import open_study  # while the child imports its tensor library
            from tuner.search.study import Study

            self._listener.ends(end)
            session = sessions[backends[0]]
            setting = self._setting(session, backends[0], strategies, objectives, end)
            self._choose_engine(store, setting)
            info = self._info(setting)
            write_run(self._folder, info)  # first: a folder with a journal and without run.json is no run
            records = open_records(self._folder, info.template)
            journal = open_study(self._folder / JOURNAL, [objective.optuna_direction for objective in objectives])
            study = Study(setting, self._host, journal, records, sessions, store, self._listener, self._interrupt)
            study.prepare()
            if not info.untouched:  # empty where a run ended before they were measured
                untouched = session.untouched(store, self._threads)
                info = replace(info, untouched=untouched, spent=self._spent(study))
                write_run(self._folder, info)
            self._listener.untouched(info.untouched, objectives)
            self._listener.resumed(study.records)
            try:
                study.run()
            finally:
                info = replace(info, ended=study.ended or info.ended, spent=self._spent(study))
                write_run(self._folder, info)
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
        config, model, task = self._config, session.model, task_info(self._task)
        if model.note:
            self._listener.say(model.note)
        check_knobs(self._space, strategies, model, task)
        return Setting(
            strategies=strategies,
            objectives=objectives,
            wanted=wanted_knobs(self._space, config.backend, deterministic=config.deterministic),
            sampler=self._space.sampler,
            seed=config.seed,
            deterministic=config.deterministic,
            model=model,
            task=task,
            rates=rates_of(session, backend, measure=not config.deterministic, announce=self._listener.say),
            limits=config.limits,
            end=end,
            folder=self._folder,
        )

    def _choose_engine(self, store: Store, setting: Setting) -> None:
        try:
            choose_engine(store, setting.model.fingerprint, self._threads, setting.rates.prefix_kind)
        except StoreFull as error:
            self._listener.say(f"warning: {error}")

    def _info(self, setting: Setting) -> RunInfo:
        """Return the content of ``run.json`` at the start."""
        return RunInfo(
            identity=self._identity,
            config=self._config,
            task_name=self._task.name,
            space_name=self._space.name,
            threads=self._threads,
            model=setting.model,
            task=setting.task,
            objectives=tuple(setting.objectives),
            untouched=self._untouched,
            spent=self._spent(None),
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
        seconds = self._earlier.seconds + time.monotonic() - self._started
        if study is None:
            return Spent(seconds)
        return Spent(seconds, study.storage_bytes(), study.filled_samples)


def _absolute(task: str | Task) -> str:
    """Return the text that names a task wherever it is read from; of a task object, its name in angle brackets."""
    if not isinstance(task, str):
        return f"<{task.name}>"
    path, colon, function = task.partition(".py:")
    if colon:
        return f"{os.path.abspath(path)}.py:{function}"  # noqa: PTH100 - the path may not exist yet
    return os.path.abspath(task) if Path(task).exists() else task  # noqa: PTH100 - kept unresolved
