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
    name = os.fspath(task or run.info.config.task)
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
        RunError: The task has changed since the run.
    """
    name, backend = os.fspath(task or run.info.config.task), plan.runtime.backend
    opening = open_remote(
        host,
        run.task or name,
        [backend],
        kill_at=limits.end,
        memory_bytes=limits.memory_bytes,
        many_jobs=many_jobs,
    )
    with opening as sessions:
        session = sessions[backend]
        if session.task.info.fingerprint != run.info.identity.task:
            raise RunError(f"the task {name} has changed since {run.folder} was made: run it again")
        yield session
