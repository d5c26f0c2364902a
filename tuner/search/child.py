"""The process that trials run in: it imports the tensor library once and forks a fresh child for every job.

Run as ``python -m tuner.search.child FD``. A forked child starts with the libraries already in memory, so a fresh
process per trial costs milliseconds, and its memory's high-water mark is the trial's own. Both sides end when the
parent does: the pipe closes.
"""

import importlib
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from tuner.backends.memory import KEPT_BYTES, return_freed
from tuner.errors import TunerError, UnsupportedError, lacking
from tuner.search.jobs import Failure, Job
from tuner.task import Task

EXIT_PARENT_GONE = 3


def main(control_handle: int) -> None:
    """Serve jobs until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what ends
    os.umask(0o077)  # whatever a backend writes is the user's own
    control = Connection(control_handle)
    try:
        preload, task_source, backends = control.recv()
        task = _prepare(preload, task_source)
        _warm(backends, task)
        control.send(None)
    except TunerError as error:
        with suppress(OSError):  # the parent may have met the same reason, and gone
            control.send(error)
        return
    except EOFError:
        return
    while True:
        try:
            job = control.recv_bytes()  # unpacked in the child: what it opens is the child's own
            handle = recv_handle(control)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _run(job, task, Connection(handle))
        os.close(handle)
        control.send(pid)
        _, status = os.waitpid(pid, 0)
        try:
            control.send(os.waitstatus_to_exitcode(status))
        except OSError:
            return


def _prepare(preload: tuple[str, ...], task_source: "str | Task") -> Task:
    for name in preload:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise lacking(error) or error from None
    if not isinstance(task_source, str):
        return task_source
    from tuner.host import Host
    from tuner.task import load_task

    return load_task(task_source, Host().tasks)


def _warm(backends: tuple[str, ...], task: Task) -> None:
    """Load what every job needs; a backend that cannot says why when its first job fails."""
    from tuner.host import Host

    host = Host() if backends else None
    for name in backends:
        if host is not None and name in host.backends:
            with suppress(Exception):
                host.backends[name].warm(task)


def _run(packed: bytes, task: Task, pipe: Connection) -> None:
    """Run one job in a forked child and leave without the parent's clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 0
    stop = threading.Event()
    threading.Thread(target=_watch, args=(pipe, stop), daemon=True).start()

    def report(progress: Mapping[str, Any]) -> bool:
        pipe.send(("progress", dict(progress)))
        return stop.is_set()

    try:
        from tuner.host import Host

        job: Job = pickle.loads(packed)  # noqa: S301 - from our own parent, over a private socket
        if job.frees:
            return_freed(KEPT_BYTES)
        method = getattr(Host().backend(job.backend), job.method)
        extra = {"report": report} if job.reports else {}
        pipe.send(("result", method(task, **job.arguments, **extra)))
    except TunerError as error:
        pipe.send(("failure", Failure(" ".join(str(error).split()), "", isinstance(error, UnsupportedError))))
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises ends this job only
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        pipe.send(("failure", Failure(line, traceback.format_exc())))
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
