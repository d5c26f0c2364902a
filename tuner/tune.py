"""A run from Python: `run` makes a study in a folder, `Run` reads what came out."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from tuner.errors import RunError, SpaceError
from tuner.folders import open_store
from tuner.host import Host, chosen
from tuner.knobs import Wanted
from tuner.plan import ModelInfo, TaskInfo, TrialPlan
from tuner.planner import cost
from tuner.results.objectives import Objective
from tuner.results.records import TrialRecord
from tuner.search import config
from tuner.search.config import RunConfig
from tuner.search.events import Listener, Silence
from tuner.search.folder import JOURNAL, locked
from tuner.search.supervisor import Interrupt, Supervisor
from tuner.search.supervisor import Limits as JobLimits
from tuner.space import Space, check_knobs, load_space
from tuner.strategy import Strategy
from tuner.task import Task, load_task
from tuner.task.mixing import class_sizes
from tuner.units import said_bytes

if TYPE_CHECKING:
    from tuner.search.study import Study

DEFAULT_SPACE = "board-10min"
CORE_STRATEGIES = ("recipe", "none", "runtime")


@dataclass(frozen=True, slots=True)
class Run:
    """A finished or interrupted run, read from its folder.

    Attributes:
        folder: Of the run.
        info: What was asked and what was spent.
        objectives: What counted.
        records: Every trial, in order.
        front: Numbers of the Pareto-optimal trials.
        knee: The balanced one of these; None where the front is empty.
        task: The task, where it was given as one; None where the run holds its name or file.
    """

    folder: Path
    info: Mapping[str, Any]
    objectives: tuple[Objective, ...]
    records: tuple[TrialRecord, ...]
    front: tuple[int, ...]
    knee: int | None
    task: Task | None = field(default=None, repr=False, compare=False)

    def record(self, trial: int) -> TrialRecord:
        """Return a trial's record.

        Raises:
            RunError: There is no such trial.
        """
        for record in self.records:
            if record.trial == trial:
                return record
        raise RunError(f"{self.folder} has no trial {trial}: it has 0 to {len(self.records) - 1}")

    def export(self, out: str | Path, pick: str = "knee", *, trainable: bool = False) -> Path:
        """Write the picked trial as a bundle; see `tuner.bundle.export_bundle`."""
        from tuner.bundle import export_bundle

        return export_bundle(self, Path(out), pick, trainable=trainable)

    @classmethod
    def open(cls, folder: str | Path, task: Task | None = None) -> "Run":
        """Read a run.

        Args:
            folder: Of the run.
            task: Needed to export a run that was made from a task object and not from a file or a name.

        Raises:
            RunError: The folder is not a run's.
        """
        from tuner.results.reading import read

        return replace(read(Path(folder)), task=task)


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
    """Tune a task within limits; see ``tuner run --help`` for the arguments.

    Args:
        task: A ``task.toml``, a ``file.py:function``, a built-in name, or a task.
        space: Name or file of a search space.
        time: Limit on the whole call, such as ``"10m"``.
        train_time: Limit on a front member's training time on an empty store.
        memory: Limit on a trial's memory above its resting size.
        storage: Limit on stored features and the run folder together.
        trials: How many trials at most.
        backend: Pins the backend.
        seed: Of the study.
        deterministic: One thread, costs from FLOPs: a resumed run equals an undisturbed one.
        out: The run's folder; by default ``runs/TASK``.
        store: The store's folder; by default in the user's cache.
        resume: Whether `out` may hold an earlier run, which then goes on.
        listener: Hears of progress.
        started: Clock (`time.monotonic`) from which `time` counts; now where it is not given.

    Raises:
        TunerError: What the user can put right.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    asked = {"time": time, "train-time": train_time, "memory": memory, "storage": storage, "trials": trials}
    wanted = load_space(space)
    limits = config.limits(asked, wanted.limits, deterministic=deterministic)
    loaded = load_task(task, Host().tasks) if isinstance(task, str) else task
    folder = Path(out) if out is not None else Path("runs") / loaded.name
    configured = RunConfig(str(_absolute(task)), space, seed, backend, deterministic, limits)
    with ExitStack() as stack:
        session = _Session(configured, wanted, loaded, task, folder, listener or Silence(), started)
        stack.callback(session.listener.close)
        if stack.enter_context(locked(folder, resume=resume)):
            session.check_resumable()
        session.go(Path(store) if store is not None else None)
    return Run.open(folder, None if isinstance(task, str) else task)


def process_started() -> float:
    """Return the clock (`time.monotonic`) at which this process began."""
    return time.monotonic() - (time.time() - float(psutil.Process().create_time()))


class _Session:
    """One call of `run`: the pieces that are alive while it works."""

    def __init__(
        self,
        configured: RunConfig,
        space: Space,
        task: Task,
        source: str | Task,
        folder: Path,
        listener: Listener,
        started: float | None,
    ) -> None:
        self._config, self._space, self._task, self._source = configured, space, task, source
        self._folder, self.listener = folder, listener
        self._started = started if started is not None else time.monotonic()
        self._host = Host()
        self._interrupt = Interrupt()
        self._before: dict[str, Any] = {}

    def check_resumable(self) -> None:
        """Refuse a run of another task, space or seed.

        Raises:
            RunError: Which, and the way out.
        """
        self._before = config.read_run(self._folder)
        changed = [
            name
            for name, now in (
                ("task", self._task.fingerprint()),
                ("space", _space_content(self._space)),
                ("seed", self._config.seed),
                ("deterministic", self._config.deterministic),
            )
            if self._before["identity"][name] != now
        ]
        if changed:
            raise RunError(
                f"{self._folder} was made with another {' and '.join(changed)}: --resume goes on with the same one; "
                "give another --out"
            )

    def go(self, store_folder: Path | None) -> None:
        """Set everything up, run the study, write what was spent."""
        store = open_store(store_folder, *self._cap())
        strategies, objectives, backends = session_parts(self._host, self._space, self._task, self._config.backend)
        preload = [name for one in backends for name in self._host.backend(one).preload]
        with _stopping(self._interrupt), Supervisor(preload, self._source, self._interrupt, backends) as supervisor:
            from tuner.search.journal import open_study  # while the child imports its tensor library
            from tuner.search.study import Setting, Study, cores
            from tuner.store.kinds import choose_kind
            from tuner.store.records import StoreFull

            threads = 1 if self._config.deterministic else cores()
            end = None if self._config.limits.time_seconds is None else self._started + self._config.limits.time_seconds
            self.listener.ends(end)
            job = JobLimits(kill_at=end, memory_bytes=None)
            model = supervisor.call(backends[0], "describe", {}, job)
            if model.note:
                self.listener.say(model.note)
            info = task_info(self._task)
            check_knobs(self._space, strategies, model, info)
            rates = self._rates(supervisor, model, backends[0], threads, job)
            try:
                choose_kind(store, model.fingerprint, threads, rates.prefix_kind)
            except StoreFull as error:
                self.listener.say(f"warning: {error}")
            wanted = wanted_knobs(self._space, self._config.backend, deterministic=self._config.deterministic)
            setting = Setting(
                strategies, objectives, wanted, self._space.sampler, self._config.seed, self._config.deterministic,
                model, info, rates, self._config.limits, end, self._folder,
            )  # fmt: skip
            self._write(model, info, objectives, threads)  # first: a folder with a journal and without it is no run
            journal = open_study(self._folder / JOURNAL, [one.optuna_direction for one in objectives])
            study = Study(setting, self._host, journal, supervisor, store, self.listener)
            study.prepare()
            if not self._before.get("untouched"):  # empty where a run was ended before it was known
                arguments = {"model": model, "store": store, "threads": threads}
                self._before["untouched"] = supervisor.call(backends[0], "untouched", arguments, job)
                self._write(model, info, objectives, threads)
            self.listener.untouched(self._before["untouched"], objectives)
            self.listener.resumed(study.records)
            try:
                study.run()
            finally:
                self._before["ended"] = study.ended or "interrupted: --resume goes on"
                self._write(model, info, objectives, threads, study)
            self.listener.say(f"ended: {study.ended}")

    def _rates(
        self, supervisor: Supervisor, model: ModelInfo, backend: str, threads: int, job: JobLimits
    ) -> cost.Rates:
        if self._config.deterministic:
            return cost.nominal(model)
        from tuner.search.rates import kept, known

        rates = known(backend, model, threads)
        if rates is None:
            self.listener.say("measuring this device on this model, once")
            rates = supervisor.call(backend, "measure", {"threads": threads}, job)
            kept(backend, model, threads, rates)
        return rates

    def _cap(self) -> tuple[int | None, str]:
        """Return what is left to the store, and how to say the limit."""
        storage = self._config.limits.storage_bytes
        if storage is None:
            return None, ""
        from tuner.search.study import RUN_RESERVE
        from tuner.store.store import disk_bytes

        used = RUN_RESERVE + disk_bytes(self._folder)
        said = f"--storage {said_bytes(storage)}, of which {said_bytes(used)} are for the run's folder,"
        return max(0, storage - used), said

    def _write(
        self, model: ModelInfo, info: TaskInfo, objectives: list[Objective], threads: int, study: "Study | None" = None
    ) -> None:
        before = self._before.get("spent_before")
        if before is None:
            before = self._before["spent_before"] = dict(self._before.get("spent", {"seconds": 0.0}))
        spent = {"seconds": before["seconds"] + time.monotonic() - self._started}
        if study is not None:
            spent |= {"storage_bytes": study.storage_bytes(), "prefix_samples": study.filled_samples}
        config.write_run(
            self._folder,
            {
                "identity": {
                    "task": self._task.fingerprint(),
                    "space": _space_content(self._space),
                    "seed": self._config.seed,
                    "deterministic": self._config.deterministic,
                },
                "config": config.as_dict(self._config),
                "task_name": self._task.name,
                "space_name": self._space.name,
                "threads": threads,
                "model": asdict(model),
                "task": asdict(info),
                "objectives": [asdict(one) for one in objectives],
                "untouched": self._before.get("untouched", {}),
                "spent": spent,
                "ended": self._before.get("ended", "interrupted: --resume goes on"),
            },
        )


def session_parts(
    host: Host, space: Space, task: Task, backend: str | None
) -> tuple[list[Strategy[Any]], list[Objective], list[str]]:
    """Return who takes part: strategies, objectives, and the names of backends.

    Raises:
        PluginError: One that is asked for is not installed.
        SpaceError: No objective is left.
    """
    from tuner.results.objectives import OBJECTIVES

    names = space.strategies
    strategies = list(host.strategies.values())
    if names is not None:
        core = [host.strategies[name] for name in CORE_STRATEGIES]
        others = [name for name in names if name not in CORE_STRATEGIES]
        strategies = [*chosen("strategy", others, host.strategies), *core]
    wanted = space.objectives or tuple(one.name for one in OBJECTIVES)
    objectives = chosen("objective", wanted, host.objectives)
    if task.global_ is None:
        objectives = [one for one in objectives if not one.needs_global]
    if not objectives:
        raise SpaceError("no objective is left: the ones asked for need global data, which the task has not")
    return strategies, objectives, [host.backend(backend).name] if backend else list(host.backends)


def wanted_knobs(space: Space, backend: str | None, *, deterministic: bool) -> dict[str, Wanted]:
    """Return what the search space and the command line want of each knob."""
    from tuner.search.study import cores

    pinned: dict[str, Wanted] = {"runtime.backend": backend} if backend else {}
    if deterministic:
        return {**space.knobs, **pinned, "runtime.threads": 1}
    return {"runtime.threads": cores(), **space.knobs, **pinned}


def task_info(task: Task) -> TaskInfo:
    """Return the task in numbers."""
    mixing = task.global_
    return TaskInfo(
        name=task.name,
        fingerprint=task.fingerprint(),
        local_train=len(task.local.train),
        local_val=len(task.local.val),
        global_per_class=class_sizes(mixing.train) if mixing else (),
        global_val=len(mixing.val) if mixing else 0,
        noun={"images": "images", "arrays": "samples", "signals": "windows"}[task.input.kind],
        augment=task.augment,
        labelled=task.labelled,
    )


def template(info: Mapping[str, Any]) -> TrialPlan:
    """Return the plan without decisions that a run's records are read with."""
    from pydantic import TypeAdapter

    return TrialPlan(
        model=TypeAdapter(ModelInfo).validate_python(info["model"]),
        task=TypeAdapter(TaskInfo).validate_python(info["task"]),
    )


@contextmanager
def _stopping(interrupt: Interrupt) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for an orderly end."""

    def ask(*_: object) -> None:
        interrupt.ask()

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller handles signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _absolute(task: str | Task) -> str:
    if not isinstance(task, str):
        return f"<{task.name}>"
    path, colon, function = task.partition(".py:")
    if colon:
        return f"{os.path.abspath(path)}.py:{function}"  # noqa: PTH100 - the path may not exist yet
    return os.path.abspath(task) if Path(task).exists() else task  # noqa: PTH100 - kept unresolved


def _space_content(space: Space) -> str:
    return repr(replace(space, limits={}))
