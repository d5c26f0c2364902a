"""The process that trials run in: it opens the task once and forks a fresh child for every job.

Run as ``python -m tuner.search.processes.child FD PARENT``. A child starts with the libraries in memory and the task
opened, and its memory's high-water mark is the trial's own. Both end when the parent does: the pipe closes.
"""

import gc
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.backends.base import Session, Trial, export
from tuner.backends.extensions import What
from tuner.errors import (
    DivergedError,
    ExtensionError,
    TaskError,
    TunerError,
    UnsupportedError,
    first_line,
    missing_extra,
    opening_error,
    trace_of,
    trace_of_cause,
)
from tuner.machine.awake import CLOCK
from tuner.machine.process_memory import KEPT_BYTES, MEMORY_LIMIT, PeakMeter, return_freed
from tuner.plugin.core import build_host
from tuner.search.processes.channel import receive
from tuner.search.processes.messages import ANOTHER, OUT_OF, Failure, Job, Start, encode, encode_progress
from tuner.search.processes.process_tree import adopt_orphans, bound_processes, die_with_parent, end_descendants, state
from tuner.task import open_task
from tuner.task.data.readable import FileCheck
from tuner.task.info import outline
from tuner.training.epochs import Report

EXIT_PARENT_GONE = 3
#: Code that is no user's: this package's, and the libraries'.
_OTHERS = (f"{Path(__file__).parents[2]}{os.sep}", f"{sysconfig.get_paths()['stdlib']}{os.sep}", "<")
#: A job reports its steps no more often: each report wakes the parent, which takes time from the job.
STEP_SECONDS = 0.05
#: Processes and threads that may be started in all: the next one fails, before the device comes to a halt.
MOST_TASKS = 512 + 64 * (os.cpu_count() or 1)
#: How often a job looks whether the processes above it were stopped, by Ctrl-Z: it is in a group of its own.
LOOK_SECONDS = 1.0
#: By backend, the task opened on it, or what opening it raised: so does every job.
Sessions = Mapping[str, Session | Exception]


def main(control_handle: int, parent: int) -> None:
    """Serve jobs until the parent goes away."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what ends
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked until here
    os.umask(0o077)  # whatever a backend writes is the user's own
    adopt_orphans()
    bound_processes(MOST_TASKS)
    control = socket.socket(fileno=control_handle)
    with suppress(EOFError, OSError):  # the parent is gone
        while _open_and_serve(control, parent):
            pass
    end_descendants(os.getpid())


def _open_and_serve(control: socket.socket, parent: int) -> bool:
    """Open a task and serve its jobs; return whether another one is to be opened then."""
    start = pickle.loads(receive(control))  # noqa: S301 - from our own parent
    try:
        sessions, owners = _opened(start, control)
    except (TunerError, OSError) as error:
        known = error if isinstance(error, TunerError) else opening_error(error)
        failure = Failure.of(str(known), trace_of_cause(known), error=type(known).__name__)
        control.sendall(encode("failure", failure))
        return False
    except BaseException as error:
        if (mistake := _mistake(error)) is None:
            raise  # a bug of ours
        failure = Failure.of(str(mistake), trace_of(error), error=type(mistake).__name__)
        control.sendall(encode("failure", failure))
        return False
    gc.freeze()  # or a collection in a child would touch, and so copy, every page of what it inherits
    control.sendall(encode("opened"))
    while _serve(control, parent, sessions, owners):
        pass
    return True


def _serve(control: socket.socket, parent: int, sessions: Sessions, owners: Mapping[What, str]) -> bool:
    """Fork a child for the next job, and tell the parent how it ended; return False where another task follows.

    Raises:
        EOFError: The parent is gone.
    """
    kind, handles, _, _ = socket.recv_fds(control, 1, 1)
    if kind == ANOTHER:
        return False
    if not handles:
        raise EOFError
    # the job is unpacked in the child: what it opens is the child's own
    backend, plan, file_bytes, job = pickle.loads(receive(control))  # noqa: S301 - from our own parent
    if plan is not None and isinstance(session := sessions[backend], Session):
        with suppress(Exception):  # the job will meet the same, and say what
            session.prepare(plan)
    server = os.getpid()
    die_with_parent(parent, 0)  # until the child has ended, as it ends what the child has started first
    pid = os.fork()
    os.setpgid(pid, pid)  # a group of its own, which can be killed at once; for both, as either may be first
    if pid == 0:
        die_with_parent(server)
        control.close()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the user's samples
        if file_bytes is not None:
            set_by_user = [at for at in resource.getrlimit(resource.RLIMIT_FSIZE) if at != resource.RLIM_INFINITY]
            bound = min([file_bytes, *set_by_user])
            resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))
        _run(job, sessions, owners, socket.socket(fileno=handles[0]))
    os.close(handles[0])
    control.sendall(encode("forked", pid))
    _wait_for(pid, control)
    _, status = os.waitpid(pid, 0)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # what it started, which was adopted
    control.sendall(encode("exited", os.waitstatus_to_exitcode(status)))
    die_with_parent(parent)
    return True


def _wait_for(pid: int, control: socket.socket) -> None:
    """Wait until a child has ended; EOFError where the parent is gone."""
    child = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(control, 0)  # it hangs up
        if child not in {descriptor for descriptor, _ in poll.poll()}:
            raise EOFError
    finally:
        os.close(child)


def _opened(start: Start, control: socket.socket) -> tuple[Sessions, dict[What, str]]:
    """Return the opened sessions, and the plugins by the kind of edit that they realise.

    The task is reported to the parent before the libraries are loaded.
    """
    if start.memory_bytes is not None:
        os.environ[MEMORY_LIMIT] = str(start.memory_bytes)
    host, own = build_host(local=start.plugins, refused=start.refused), os.getpid()
    host.check_local()
    task = start.task
    if isinstance(task, str):
        FileCheck.hear = staticmethod(lambda done, of: control.sendall(encode("looked", [done, of])))
        ask = host.backend(start.backends[0]).input_defaults
        task = open_task(task, host.tasks, host.task_files, defaults_of=ask)
    if os.getpid() != own:
        os._exit(0)  # a copy that the task's code has forked, and that came back from it
    if start.adapt is not None:
        task = start.adapt(task)
    control.sendall(encode("task", outline(task)))
    _preload(start.preload, start.optional)
    if start.many_jobs:
        task.hash_samples()

    def opened(name: str) -> Session | Exception:
        try:
            session = host.backend(name).open(task, host.extensions(name))
            if start.many_jobs:
                _ = session.model  # measured once, not in every child
        except SystemExit as error:
            return TaskError(f"opening the task ran code that called sys.exit({error.code!r}): remove the call")
        except Exception as error:  # noqa: BLE001 - a backend may raise anything: its jobs say what
            return error
        return session

    owners = {kind: own[0] for name in start.backends for kind, own in host.extensions(name).owners.items()}
    return {name: opened(name) for name in start.backends}, owners


def _preload(modules: Iterable[str], optional: Iterable[str]) -> None:
    gc.disable()  # what an import makes stays: looking for garbage meanwhile takes a fifth of the time
    try:
        for name in modules:
            importlib.import_module(name)
        for name in optional:
            with suppress(Exception):  # a job that needs it will raise the same error, and report it
                importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    finally:
        gc.enable()


def _run(packed: bytes, sessions: Sessions, owners: Mapping[What, str], connection: socket.socket) -> None:
    """Run one job in a forked child and leave without the parent's clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 0
    pipe = _Reporter(connection)
    try:
        job: Job = pickle.loads(packed)  # noqa: S301 - from our own parent, over a private socket
        if job.frees:
            return_freed(KEPT_BYTES)
        if job.metered:
            pipe.report({"resting_bytes": PeakMeter().resting})
        last = encode("result", _result(job, sessions[job.backend], pipe.report))
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises ends this job only
        failure = _failure(error, owners)
        code = int(failure.is_bug)
        last = encode("failure", failure)
    try:
        pipe.send(last)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _result(job: Job, session: Session | Exception, report: Report) -> Any:
    if isinstance(session, Exception):
        raise session
    if job.method == "model":
        return session.model
    own = {name: replace(value, report=report) for name, value in job.arguments.items() if isinstance(value, Trial)}
    arguments = {**job.arguments, **own, **({"report": report} if job.reports else {})}
    if job.method == "export":
        return export(session, **arguments)
    return getattr(session, job.method)(**arguments)


def _failure(error: BaseException, owners: Mapping[What, str]) -> Failure:
    """Return what a job raised, with the plugin that is at fault where that is known."""
    try:
        if not isinstance(error, TunerError):
            trace = "".join(traceback.format_exception(error))
            return Failure.of(first_line(error), trace, is_bug=True)
        trace = trace_of_cause(error) if isinstance(error, ExtensionError | TaskError) else ""
        what = (error.what, error.kind) if isinstance(error, ExtensionError) else ("", "")
        owner = f"plugin {owners[what]!r}, " if what in owners else ""
        known = DivergedError.__name__ if isinstance(error, DivergedError) else ""
        unsupported = isinstance(error, UnsupportedError)
        return Failure.of(f"{owner}{error}", trace, unsupported=unsupported, edit=what[1], error=known)
    except BaseException as second:  # noqa: BLE001 - its own text may be what raises
        return Failure.of(f"{type(error).__name__}, whose text raised {type(second).__name__}", is_bug=True)


def _mistake(error: BaseException) -> TaskError | None:
    """Return what code of the user's raised, with its file, line and sample; None where none was reached."""
    own, sample = "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        installed = {"site-packages", "dist-packages"}.intersection(Path(code.co_filename).parts)
        if code.co_filename.startswith(_OTHERS) or installed:
            continue
        own, taken = f"{code.co_filename}:{line}", code.co_varnames[: code.co_argcount]
        if code.co_name == "load" and len(taken) == len(("self", "index")):
            index = frame.f_locals.get(taken[1])
            sample = f" for sample {index}" if isinstance(index, int) else sample
    return TaskError(f"{own} raised {first_line(error)}{sample}") if own else None


class _Reporter:
    """A job's end of the pipe."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._stop, self._reported = connection, threading.Event(), 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, progress: Mapping[str, Any]) -> bool:
        """Report progress and return whether the job is to stop."""
        message = encode_progress(progress)
        if any(name in progress and progress[name] < progress[of] for name, of in OUT_OF.items()):
            if time.monotonic() - self._reported < STEP_SECONDS:
                return self._stop.is_set()
            self._reported = time.monotonic()
        self.send(message)
        return self._stop.is_set()

    def send(self, message: bytes) -> None:
        """Send a message, and wait until the parent has room for it."""
        with self._lock:
            self._connection.sendall(message)

    def _watch(self) -> None:
        """Note a request to stop; end the process when the parent is gone; stop while the parent is stopped."""
        poll, server = select.poll(), os.getppid()
        CLOCK.begin()
        poll.register(self._connection, select.POLLIN)
        while True:
            CLOCK.now()  # what a job measures does not count the time in which it was stopped
            if not poll.poll(1000 * LOOK_SECONDS):
                if state(server) == "T":
                    os.kill(0, signal.SIGSTOP)  # the parent continues it
                continue
            try:
                stop = self._connection.recv(1)
            except OSError:
                stop = b""
            if not stop:
                os._exit(EXIT_PARENT_GONE)
            self._stop.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
