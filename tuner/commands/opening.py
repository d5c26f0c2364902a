"""A run's task, opened again: to export a trial, or to look at one."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.commands.limits import CommandLimits
from tuner.commands.tune.run import plugins_of_run
from tuner.errors import RunError
from tuner.plan.trial import TrialPlan
from tuner.plugin.core import build_host, differences
from tuner.plugin.host import Host
from tuner.reading import kind_of, path_from
from tuner.results.records.config import task_file
from tuner.results.records.origin import is_own
from tuner.results.run import Run
from tuner.search.processes.remote import RemoteSession, open_remote


def host_of_run(
    run: Run,
    task: str | os.PathLike[str] | None,
    plugins: Iterable[Path | str],
    limits: CommandLimits,
    warn: Callable[[str], object],
) -> Host:
    """Return what is installed, with the local plugins of a run, and warn where they are not those of then.

    The user may name the task and the plugins again.

    Raises:
        RunError: The run was not made on this device and names code that was not given again, or its task is not named.
    """
    name = _task_name(run, task)
    if run.task is None and name.startswith("<"):
        raise RunError(
            f"{run.folder} was made from a task given in Python, which it does not hold: "
            f"call tuner.export(tuner.Run.open({str(run.folder)!r}, task), out)"
        )
    host = build_host(local=plugins, end=limits.end)
    if recorded := plugins_of_run(run.info, run.folder, host.local):
        host = build_host(local=[*recorded, *plugins], end=limits.end)
    host.check_local()
    is_named = run.task is None and task is None and name not in host.tasks
    if is_named and not is_own(run.info.config, run.info.mark):
        raise RunError(
            f"{run.folder} has no mark of this device (it was made elsewhere, or before the cache was deleted), "
            f"and its task {name} may be code: read it, then give --task {name}"
        )
    if is_named and name != run.info.config.task:
        warn(f"the task is no longer {run.info.config.task}, so {name} is taken")
    if changed := differences(host, run.info.plugins):
        warn(f"the run was made with other plugins: {changed}")
    return host


@contextmanager
def opened_run(
    run: Run,
    host: Host,
    plan: TrialPlan,
    task: str | os.PathLike[str] | None,
    limits: CommandLimits,
    *,
    many_jobs: bool = False,
) -> Iterator[RemoteSession]:
    """Open a run's task on a plan's backend, in another process that ends with the block; see `host_of_run`.

    With `many_jobs`, what every job needs is computed before the first.

    Raises:
        RunError: The task's files are not there, or the task's settings have changed since the run.
    """
    name, backend = _task_name(run, task), plan.runtime.backend
    file = path_from(task_file(name)[0])
    if run.task is None and Path(file).is_absolute() and kind_of(file) == "nothing":
        raise RunError(f"{name}, the task of {run.folder}, is not there: name it where it is now by --task")
    opening = open_remote(
        host, run.task or name, [backend], kill_at=limits.end, memory_bytes=limits.memory_bytes, many_jobs=many_jobs
    )
    with opening as sessions:
        session = sessions[backend]
        then, now = run.info.contents, session.task.contents
        if then.settings_changed(now):
            raise RunError(
                f"the task {name} has changed since {run.folder} was made ({then.differences(now)}): give it as "
                f"it was, or run it again from this front: tuner run {name} --from {run.folder} --out NEW"
            )
        yield session


def samples_changed(run: Run, session: RemoteSession, warn: Callable[[str], object]) -> set[str]:
    """Return the partitions whose samples are others than when a run was made, and warn of them."""
    then, now = run.info.contents, session.task.contents
    changed = set(then.samples_changed(now))
    if changed:
        warn(
            f"the task's samples have changed since {run.folder} was made ({then.differences(now)}): the weights and "
            "the accuracies of the trial are those of then"
        )
    return changed


def _task_name(run: Run, task: str | os.PathLike[str] | None) -> str:
    """Return what names a run's task: what the user gives, else what the run was made from, wherever that is now."""
    return os.fspath(task) if task else run.info.config.found(run.info.config.task, run.folder)
