"""The process that trials run in: it opens the task once and forks a fresh child for every job.

Run as ``python -m tuner.search.processes.child FD``. A forked child starts with the libraries in memory and the task
opened, so a fresh process per trial costs milliseconds, and its memory's high-water mark is the trial's own. Both sides
end when the parent does: the pipe closes.
"""

import importlib
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from tuner.backends.base import Session, Trial
from tuner.backends.extensions import What
from tuner.errors import ExtensionError, TaskError, TunerError, UnsupportedError, first_line, missing_extra
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.process_memory import KEPT_BYTES, MEMORY_LIMIT, PeakMeter, return_freed
from tuner.search.processes.messages import Failure, Job, Start
from tuner.task import Task, load_task
from tuner.task.info import outline

EXIT_PARENT_GONE = 3
#: A job reports its steps no more often: each report wakes the parent, which takes time from the job.
STEP_SECONDS = 0.05


def main(control_handle: int) -> None:
    """Serve jobs until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what ends
    os.umask(0o077)  # whatever a backend writes is the user's own
    control = Connection(control_handle)
    try:
        sessions, owners = _opened(control.recv(), control.send)
        control.send(None)
    except TunerError as error:
        with suppress(OSError):  # the parent may have met the same reason, and gone
            control.send(error)
        return
    except EOFError:
        return
    while True:
        try:
            backend, plan = control.recv()
            job = control.recv_bytes()  # unpacked in the child: what it opens is the child's own
            handle = recv_handle(control)
        except EOFError:
            return
        if plan is not None:
            with suppress(Exception):  # the job will meet the same, and say what
                sessions[backend]().prepare(plan)
        pid = os.fork()
        if pid == 0:
            control.close()
            _run(job, sessions, owners, Connection(handle))
        os.close(handle)
        control.send(pid)
        _, status = os.waitpid(pid, 0)
        try:
            control.send(os.waitstatus_to_exitcode(status))
        except OSError:
            return


def _opened(start: Start, tell: Callable[[str], None]) -> tuple[dict[str, Callable[[], Session]], dict[What, str]]:
    """Return, by backend, what gives the task opened on it, and the plugins by the kind of edit that they realise.

    The parent is told of the task before the libraries are loaded. What opening raised is raised again by every job.
    """
    if start.memory_bytes is not None:
        os.environ[MEMORY_LIMIT] = str(start.memory_bytes)
    host = build_host(local=start.plugins, refused=start.refused)
    host.check_local()
    task = _loaded(start, host)
    tell(outline(task).to_json())
    _preload(start.preload)
    if start.many_jobs:
        task.hash_samples()

    def opened(name: str) -> Callable[[], Session]:
        def fail(error: Exception) -> Callable[[], Session]:
            def again() -> Session:
                raise error

            return again

        try:
            session = host.backend(name).open(task, host.extensions(name))
            if start.many_jobs:
                _ = session.model  # measured once, not in every child
        except SystemExit as error:
            return fail(TaskError(f"opening the task ran code that called sys.exit({error.code!r}): remove the call"))
        except Exception as error:  # noqa: BLE001 - a backend may raise anything: its jobs say what
            return fail(error)
        return lambda: session

    owners = {kind: own[0] for name in start.backends for kind, own in host.extensions(name).owners.items()}
    return {name: opened(name) for name in start.backends}, owners


def _preload(modules: Iterable[str]) -> None:
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from None


def _loaded(start: Start, host: Host) -> Task:
    """Return the task that is to be opened."""
    task = load_task(start.task, host.tasks) if isinstance(start.task, str) else start.task
    return task if start.adapt is None else start.adapt(task)


def _run(
    packed: bytes, sessions: Mapping[str, Callable[[], Session]], owners: Mapping[What, str], pipe: Connection
) -> None:
    """Run one job in a forked child and leave without the parent's clean-up.

    Args:
        packed: The job.
        sessions: What gives the task opened on a backend.
        owners: Plugins by what they realise.
        pipe: To the parent.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 0
    stop = threading.Event()
    threading.Thread(target=_watch, args=(pipe, stop), daemon=True).start()

    reported = 0.0

    def report(progress: Mapping[str, Any]) -> bool:
        nonlocal reported
        if "step" in progress:
            if time.monotonic() - reported < STEP_SECONDS:
                return stop.is_set()
            reported = time.monotonic()
        pipe.send(("progress", dict(progress)))
        return stop.is_set()

    try:
        job: Job = pickle.loads(packed)  # noqa: S301 - from our own parent, over a private socket
        if job.frees:
            return_freed(KEPT_BYTES)
        if job.metered:
            report({"resting_bytes": PeakMeter().resting})
        session = sessions[job.backend]()
        arguments = {
            name: replace(value, report=report) if isinstance(value, Trial) else value
            for name, value in job.arguments.items()
        }
        if job.reports:
            arguments["report"] = report
        pipe.send(("result", session.model if job.method == "model" else getattr(session, job.method)(**arguments)))
    except TunerError as error:
        in_plugin = isinstance(error, ExtensionError) and error.__cause__ is not None
        trace = traceback.format_exc() if in_plugin else ""
        what = (error.what, error.kind) if isinstance(error, ExtensionError) else ("", "")
        owner = f"plugin {owners[what]!r}, " if what in owners else ""
        line, edit = " ".join(f"{owner}{error}".split()), what[1]
        pipe.send(("failure", Failure(line, trace, isinstance(error, UnsupportedError), edit)))
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises ends this job only
        line = first_line(error)
        pipe.send(("failure", Failure(line, traceback.format_exc(), is_bug=True)))
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _watch(pipe: Connection, stop: threading.Event) -> None:
    """Note a request to stop; end the process when the parent is gone."""
    try:
        while True:
            pipe.recv()
            stop.set()
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(EXIT_PARENT_GONE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
