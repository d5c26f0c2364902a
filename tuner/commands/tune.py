"""Tune a task: run a study in a folder, within limits."""

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import psutil

from tuner.commands.tuning import NO_RUN, Tuning
from tuner.plugin.core import build_host
from tuner.plugin.finding import local_plugin
from tuner.reading import kind_of, path_from, text_from
from tuner.results.config import RunConfig
from tuner.results.folder import FILE, read_run
from tuner.results.lock import lock_folder
from tuner.results.prior import read_prior
from tuner.results.run import Run
from tuner.search.budget import LIMITS, budget, check_seed
from tuner.search.listener import Listener
from tuner.search.space import Space, load_space
from tuner.task import Task, load_task

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
    forget_at_most: str | None = None,
    stop_when_flat: str | None = None,
    backend: str | None = None,
    seed: int = 0,
    deterministic: bool = False,
    out: str | Path | None = None,
    store: str | Path | None = None,
    earlier: str | Path | None = None,
    resume: bool = False,
    plugins: Iterable[str | Path | ModuleType] = (),
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
        forget_at_most: Limit on the loss of global accuracy against the untouched model, such as ``"3%"``.
        stop_when_flat: Time without a better front after which the run ends, such as ``"60s"``.
        backend: The only backend to use; any that is installed where it is not given.
        seed: The study's seed: the same seed suggests the same plans.
        deterministic: Whether to use one thread and costs from FLOPs instead of clocks, so that a resumed run equals
            an undisturbed one.
        out: The run's folder; by default ``runs/TASK``.
        store: The feature store's folder; by default in the user's cache.
        earlier: A run whose front is tried first, or ``"none"``; by default the newest run of the same model, and none
            if `deterministic`.
        resume: Whether to continue the run in `out`, if there is one.
        plugins: Plugins that are not installed: Python files, or modules, which are loaded again from their files in
            the processes that trials run in.
        listener: Receives progress.
        started: Clock (`time.monotonic`) from which `time` counts; now where it is not given.

    Returns:
        The run, as `Run.open` reads it from its folder.

    Raises:
        TunerError: The task, the space, a plugin, a limit or the folder cannot be used as asked.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    texts = dict(zip(LIMITS, (time, train_time, memory, storage, trials, forget_at_most, stop_when_flat), strict=True))
    search_space = load_space(space)
    _check_first_plans(search_space, earlier)
    limits = budget(texts, search_space.limits, deterministic=deterministic)
    local = [*search_space.plugins, *plugins]
    host = build_host(local=local)
    loaded = load_task(task, host.tasks) if isinstance(task, str) else task
    folder = Path(out) if out is not None else Path("runs") / path_from(loaded.name)
    if resume and (recorded := plugins_of_run(folder, host.local)):
        host = build_host(local=[*recorded, *local])
    host.check_local()
    config = RunConfig(
        task=text_from(_absolute(task)),
        space=text_from(space),
        seed=check_seed(seed),
        backend=backend,
        deterministic=deterministic,
        limits=limits,
        plugins=tuple(map(text_from, host.local)),
    )
    listener = listener or Listener()
    with ExitStack() as stack:
        stack.callback(listener.close)
        tuning = Tuning(config, search_space, loaded, task, folder, listener, started, host, earlier)
        if stack.enter_context(lock_folder(folder, resume=resume)):
            tuning.resume()
        tuning.tune(Path(store) if store is not None else None)
    return Run.open(folder, None if isinstance(task, str) else task)


def plugins_of_run(folder: Path, given: Iterable[str]) -> list[str]:
    """Return the local plugins that a run was made with, but for those that are given again, maybe from elsewhere.

    Args:
        folder: The run's folder; it may be empty.
        given: Files of plugins.
    """
    names = {local_plugin(file).name for file in given}
    recorded = read_run(folder).config.plugins if (folder / FILE).exists() else ()
    return [file for file in map(path_from, recorded) if local_plugin(file).name not in names]


def _check_first_plans(space: Space, earlier: str | Path | None) -> None:
    """Read what names the plans to try first: a mistake there is reported before the libraries are loaded."""
    if earlier is not None and earlier != NO_RUN:
        Run.open(earlier)
    if space.prior:
        read_prior(Path(space.prior))


def process_started() -> float:
    """Return the clock (`time.monotonic`) at which this process began."""
    return time.monotonic() - (time.time() - float(psutil.Process().create_time()))


def _absolute(task: str | Task) -> str:
    """Return the text that names a task wherever it is read from; of a task object, its name in angle brackets."""
    if not isinstance(task, str):
        return f"<{task.name}>"
    path, colon, function = task.partition(".py:")
    if colon:
        return f"{os.path.abspath(path)}.py:{function}"  # noqa: PTH100 - the path may not exist yet
    return os.path.abspath(task) if kind_of(task) != "nothing" else task  # noqa: PTH100 - kept unresolved
