"""Tune a task: run a study in a folder, within limits."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import ModuleType

from tuner.commands.audience import audience
from tuner.commands.interruption import stopping
from tuner.commands.run import Run
from tuner.commands.sharing import shared_address, sharing
from tuner.commands.tuning import NO_RUN, Tuning
from tuner.errors import RunError, UsageError, disk_error
from tuner.events import Event
from tuner.plugin.core import build_host
from tuner.plugin.finding import local_plugin
from tuner.plugin.host import Host
from tuner.reading import kind_of, path_from, text_from
from tuner.results.config import Budget, RunConfig
from tuner.results.folder import FILE, RunInfo, read_run
from tuner.results.lock import lock_folder
from tuner.results.origin import is_own
from tuner.results.prior import Prior
from tuner.search.budget import KEEP_GOING, LIMITS, budget, check_seed
from tuner.search.folds import check_folds, check_possible_folds
from tuner.search.listener import OPENING, Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.process_tree import require_linux
from tuner.search.processes.remote import open_remote
from tuner.search.setting import (
    CLOSING_SECONDS,
    backends_of,
    check_measured,
    objectives_for,
    participants,
)
from tuner.search.space import Space, load_prior, load_space
from tuner.task import Task
from tuner.task.info import TaskOutline

DEFAULT_SPACE = "board-10min"
STATUS = Path("/proc/self/stat")


def run(
    task: str | Task,
    *,
    space: str = DEFAULT_SPACE,
    time: str | None = None,
    train_time: str | None = None,
    memory: str | None = None,
    storage: str | None = None,
    trials: int | None = None,
    forget_at_most: str | None = None,
    stop_when_flat: str | None = None,
    keep_going: bool = False,
    backend: str | None = None,
    seed: int = 0,
    deterministic: bool = False,
    folds: int | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    earlier: str | Path | None = None,
    prior: str | Path | None = None,
    resume: bool = False,
    plugins: Iterable[str | Path | ModuleType] = (),
    study: str | None = None,
    artifacts: str | Path | None = None,
    progress: bool | None = None,
    on_event: Callable[[Event], object] | None = None,
    listener: Listener | None = None,
    started: float | None = None,
) -> Run:
    """Tune a task within limits: try plans by training them, and keep the Pareto front.

    Limits are text, as on the command line; one that is not given is the search space's.

    Args:
        task: A ``task.toml``, a ``file.py:function``, the name of a built-in task, or a task.
        space: Name or file of a search space.
        time: Limit on the whole call, such as ``"10m"``.
        train_time: Limit on a result's training time, without the time to fill the feature store.
        memory: Limit on the memory that a trial adds to its process, such as ``"512MB"``.
        storage: Limit on stored features and the run folder together.
        trials: Limit on the number of trials.
        forget_at_most: Limit on the loss of global accuracy against the untouched model, such as ``"3%"``.
        stop_when_flat: Time without a better front after which the run ends, such as ``"60s"``.
        keep_going: Whether to use all of `time`, even if nothing is left to gain that the validation samples could
            show.
        backend: The only backend to use; any that is installed where it is not given.
        seed: The study's seed: the same seed suggests the same plans.
        deterministic: Whether to use one thread and costs from FLOPs instead of clocks, so that a resumed run equals
            an undisturbed one.
        folds: Number of folds, from 2, that the local training samples are divided into: each is scored by a training
            without it, so that a trial takes as many trainings more, and its local accuracy is of all local samples.
            None scores on the local validation samples alone.
        out: The run's folder; by default ``runs/TASK``.
        store: The feature store's folder; by default in the user's cache.
        earlier: A run whose front is tried first, or ``"none"``; by default the newest run of the same model, and none
            if `deterministic` or with a prior.
        prior: A file that ``tuner prior build`` wrote, or ``"shipped"`` for the one that comes with tuner: those of
            its plans that suit the task are tried first; by default the search space's, if it names one and `earlier`
            is not given.
        resume: Whether to continue the run in `out`, if there is one.
        plugins: Plugins that are not installed: Python files, or modules, which are loaded again from their files in
            the processes that trials run in.
        study: Address of a study that several workers share, which is begun or joined: ``postgresql://host/db``.
        artifacts: Folder, or ``s3://BUCKET/PREFIX``, where workers of a study put the weights of its front, for
            whoever exports one.
        progress: Whether to show progress on stderr; by default on a terminal and in a notebook, unless `on_event` or
            `listener` is given. Every event is logged to the logger ``tuner.run`` in any case.
        on_event: Called with each event of `tuner.events`, in the calling thread: it should return at once. An
            exception that it raises ends the run, which can be continued with `resume`.
        listener: Receives progress as the command line does, before it becomes events.
        started: Clock (`time.monotonic`) from which `time` counts; now where it is not given.

    Returns:
        The run, as ``tuner.Run.open`` reads it from its folder.

    Raises:
        TunerError: The task, the space, a plugin, a limit or the folder cannot be used as asked.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    address = shared_address(study, artifacts, deterministic=deterministic)
    given = (time, train_time, memory, storage, trials, forget_at_most, stop_when_flat, keep_going or None)
    texts = dict(zip((*LIMITS, KEEP_GOING), given, strict=True))
    search_space = load_space(space)
    first = _prior_of(search_space, earlier, prior)
    limits, number_of_folds = budget(texts, search_space.limits, deterministic=deterministic), check_folds(folds)
    started = started if started is not None else monotonic()
    end = None if limits.time_seconds is None else started + limits.time_seconds
    listener, interrupt = audience(listener, on_event, progress=progress), Interrupt()
    listener.ends(end)
    with ExitStack() as stack:
        stack.callback(listener.close)
        local = [*search_space.plugins, *plugins]
        host, folder = build_host(local=local, end=end), None if out is None else Path(out)
        if resume:
            listener.phase(OPENING)
            host, folder = _resumed(host, folder, task, backend, local, end)
        host.check_local()
        config = RunConfig(
            task=text_from(_absolute(task)),
            space=text_from(space),
            seed=check_seed(seed),
            backend=backend,
            deterministic=deterministic,
            limits=limits,
            plugins=tuple(map(text_from, host.local)),
            folds=number_of_folds,
            study="" if address is None else address.shown,
        )
        strategies, objectives = participants(host, search_space)
        backends = backends_of(host, backend)
        check_measured(host, objectives, backends)
        for plugin in host.refused:
            listener.say(f"plugin {plugin.name} takes no part: {plugin.refused}")
        begun: bool | None = None
        if (
            folder is not None and kind_of(folder) != "nothing"
        ):  # one that cannot be used is refused at once, and none is made yet
            begun = stack.enter_context(lock_folder(folder, resume=resume))
        stack.enter_context(stopping(interrupt))
        opening = open_remote(
            host,
            task,
            backends,
            interrupt=interrupt,
            kill_at=None if end is None else end - CLOSING_SECONDS / 2,
            memory_bytes=limits.memory_bytes,
            many_jobs=True,
        )
        listener.phase(OPENING)
        sessions = stack.enter_context(opening)
        outline = sessions[backends[0]].task
        check_possible_folds(number_of_folds, outline)
        folder = folder or _folder_of(outline)
        listener.begins(folder)
        if begun is None:
            begun = stack.enter_context(lock_folder(folder, resume=resume))
        shared = stack.enter_context(sharing(address, listener, interrupt, end, artifacts, limits.memory_bytes))
        about = (config, search_space, outline, folder, listener, interrupt, started, host, earlier, first, shared)
        tuning = Tuning(*about)
        if begun:
            tuning.resume()
        objectives = objectives_for(outline, objectives)
        try:
            tuning.tune(Path(store) if store is not None else None, sessions, strategies, objectives, end)
        except OSError as error:
            raise disk_error(error, folder, then=", then continue with --resume") or error from None
    result = Run.open(folder, None if isinstance(task, str) else task)
    listener.finished(result)
    return result


def _resumed(
    host: Host,
    folder: Path | None,
    task: str | Task,
    backend: str | None,
    local: Sequence[str | Path | ModuleType],
    end: float | None,
) -> tuple[Host, Path]:
    """Return the host with the plugins of a run that continues, and the run's folder."""
    if folder is None:  # its plugins have to be known before the task is opened for good
        with open_remote(host, task, backends_of(host, backend)[:1], kill_at=end) as sessions:
            folder = _folder_of(next(iter(sessions.values())).task)
    if not (folder / FILE).exists():
        return host, folder
    recorded = plugins_of_run(read_run(folder), folder, host.local)
    return (build_host(local=[*recorded, *local], end=end) if recorded else host), folder


def plugins_of_run(info: RunInfo, folder: Path, given: Iterable[str]) -> list[str]:
    """Return the local plugins that a run was made with, but for those that are given again, maybe from elsewhere.

    Args:
        info: What the run says of itself.
        folder: The run's folder.
        given: Files of plugins.

    Raises:
        RunError: There are such plugins, and the run was not made on this device.
    """
    names = {local_plugin(file).name for file in given}
    recorded = [file for file in map(path_from, info.config.plugins) if local_plugin(file).name not in names]
    if recorded and not is_own(info.config, info.mark):
        raise RunError(
            f"{folder} has no mark of this device (it was made elsewhere, by an earlier version, or before the cache "
            f"was deleted), and its plugin {recorded[0]} is code: read it, then give it by --plugin"
        )
    return recorded


def _folder_of(task: TaskOutline) -> Path:
    """Return a run's folder where the user names none: it is called as the task is."""
    return Path("runs") / path_from(task.info.name)


def _prior_of(space: Space, earlier: str | Path | None, prior: str | Path | None) -> Prior | None:
    """Read what names the plans to try first: a mistake there is reported before the libraries are loaded.

    Raises:
        TunerError: A run or a prior cannot be read, or both are named.
    """
    if earlier is not None and earlier != NO_RUN:
        if prior is not None:
            raise UsageError("--from and --prior both name what to start from: give one of them")
        Run.open(earlier)
    if prior is not None:
        return load_prior(prior)
    return load_prior(space.prior) if space.prior and earlier is None else None


def limits_of(space: str, asked: Mapping[str, str | int | None], *, deterministic: bool) -> Budget:
    """Return the limits of a run: what was asked for, else what its search space says.

    Args:
        space: Name or file of the search space.
        asked: Limits by the names that `run` gives them; None for the space's.
        deterministic: Whether the run is deterministic.

    Raises:
        TunerError: The space or a limit cannot be used as given.
    """
    texts = {name.replace("_", "-"): value for name, value in asked.items()}
    return budget(texts, load_space(space).limits, deterministic=deterministic)


def process_started() -> float:
    """Return the clock (`time.monotonic`) at which this process began, whatever happened to the time of day since.

    Raises:
        RunError: This system is not Linux, or its ``/proc`` cannot be read.
    """
    require_linux()
    try:
        fields = STATUS.read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[19])  # since the system's start; see proc(5)
    except OSError:
        raise RunError("tuner needs /proc, to see how much memory a trial takes: mount it") from None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(0.0, age)


def _absolute(task: str | Task) -> str:
    """Return the text that names a task wherever it is read from; of a task object, its name in angle brackets."""
    if not isinstance(task, str):
        return f"<{task.name}>"
    path, colon, function = task.partition(".py:")
    if colon:
        return f"{os.path.abspath(path)}.py:{function}"  # noqa: PTH100 - the path may not exist yet
    return os.path.abspath(task) if kind_of(task) != "nothing" else task  # noqa: PTH100 - kept unresolved
