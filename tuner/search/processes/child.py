"""The process that trials run in: it opens the task once and forks a fresh child for every job.

Run as ``python -m tuner.search.processes.child FD``. A forked child starts with the libraries in memory and the task
opened, so a fresh process per trial costs milliseconds, and its memory's high-water mark is the trial's own. Both sides
end when the parent does: the pipe closes.
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
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tuner.backends.base import Session, Trial
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
    trace_of_cause,
)
from tuner.plugin.core import build_host
from tuner.plugin.host import Host
from tuner.process_memory import KEPT_BYTES, MEMORY_LIMIT, PeakMeter, return_freed
from tuner.search.processes import frames, wire
from tuner.search.processes.family import adopt_orphans, bound_processes, die_with_parent, end_descendants, state
from tuner.search.processes.frames import Channel, FrameError, frame, receive_packed
from tuner.search.processes.messages import Failure, Job, Start
from tuner.task import Task, open_task
from tuner.task.info import outline

EXIT_PARENT_GONE = 3
#: A job reports its steps no more often: each report wakes the parent, which takes time from the job.
STEP_SECONDS = 0.05
#: Processes and threads that may be started in all: the next one fails, before the device comes to a halt.
MOST_TASKS = 512 + 64 * (os.cpu_count() or 1)
#: How often a job looks whether the processes above it were stopped, by Ctrl-Z: it is in a group of its own.
LOOK_SECONDS = 1.0
#: What a parent that does not read may have still to read; further progress is dropped.
MOST_UNSENT_BYTES = 1_000_000
#: Longest time that a job waits for its parent to take its last word.
LAST_WORD_SECONDS = 3600.0
#: By backend, what gives the task opened on it.
Sessions = Mapping[str, Callable[[], Session]]


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
        start = pickle.loads(receive_packed(control))  # noqa: S301 - from our own parent
        try:
            sessions, owners = _opened(start, control)
        except (TunerError, OSError) as error:
            known = error if isinstance(error, TunerError) else opening_error(error)
            failure = wire.failure(str(known), trace_of_cause(known), error=type(known).__name__)
            control.sendall(frame(frames.FAILURE, wire.encode_failure(failure)))
            return
        gc.freeze()  # or a collection in a child would touch, and so copy, every page of what it inherits
        control.sendall(frame(frames.OPENED))
        while True:
            _serve(control, sessions, owners)


def _serve(control: socket.socket, sessions: Sessions, owners: Mapping[What, str]) -> None:
    """Fork a child for the next job, and tell the parent how it ended.

    Raises:
        EOFError: The parent is gone.
    """
    backend, plan, file_bytes = pickle.loads(receive_packed(control))  # noqa: S301 - as above
    job = receive_packed(control)  # unpacked in the child: what it opens is the child's own
    _, (handle, *_), _, _ = socket.recv_fds(control, 1, 1)
    if plan is not None:
        with suppress(Exception):  # the job will meet the same, and say what
            sessions[backend]().prepare(plan)
    server = os.getpid()
    pid = os.fork()
    os.setpgid(pid, pid)  # a group of its own, which can be killed at once; for both, as either may be first
    if pid == 0:
        die_with_parent(server)
        control.close()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the user's samples
        if file_bytes is not None:
            set_by_user = [one for one in resource.getrlimit(resource.RLIMIT_FSIZE) if one != resource.RLIM_INFINITY]
            bound = min([file_bytes, *set_by_user])
            resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))
        _run(job, sessions, owners, socket.socket(fileno=handle))
    os.close(handle)
    control.sendall(frame(frames.FORKED, str(pid).encode()))
    _wait_for(pid, control)
    _, status = os.waitpid(pid, 0)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # what it started, which was adopted
    control.sendall(frame(frames.EXITED, str(os.waitstatus_to_exitcode(status)).encode()))


def _wait_for(pid: int, control: socket.socket) -> None:
    """Wait until a child has ended; where the parent goes first, end all that it has started.

    Raises:
        EOFError: The parent is gone.
    """
    child = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(child, select.POLLIN)
        poll.register(control, 0)  # it hangs up
        if child not in {descriptor for descriptor, _ in poll.poll()}:
            end_descendants(os.getpid())
            raise EOFError
    finally:
        os.close(child)


def _opened(start: Start, control: socket.socket) -> tuple[Sessions, dict[What, str]]:
    """Return, by backend, what gives the task opened on it, and the plugins by the kind of edit that they realise.

    The task is reported to the parent before the libraries are loaded. What opening raised is raised by every job.
    """
    if start.memory_bytes is not None:
        os.environ[MEMORY_LIMIT] = str(start.memory_bytes)
    host = build_host(local=start.plugins, refused=start.refused)
    host.check_local()
    task = _loaded(start, host)
    control.sendall(frame(frames.TASK, wire.encode(outline(task))))
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
    gc.disable()  # what an import makes stays: looking for garbage meanwhile takes a fifth of the time
    try:
        for name in modules:
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    finally:
        gc.enable()


def _loaded(start: Start, host: Host) -> Task:
    """Return the task that is to be opened."""
    ask = host.backend(start.backends[0]).input_defaults
    task = start.task
    if isinstance(task, str):
        task = open_task(task, host.tasks, host.task_files, defaults_of=ask)
    return task if start.adapt is None else start.adapt(task)


def _run(packed: bytes, sessions: Sessions, owners: Mapping[What, str], connection: socket.socket) -> None:
    """Run one job in a forked child and leave without the parent's clean-up.

    Args:
        packed: The job.
        sessions: What gives the task opened on a backend.
        owners: Plugins by what they realise.
        connection: To the parent.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 0
    pipe = _Reporter(connection)
    try:
        job: Job = pickle.loads(packed)  # noqa: S301 - from our own parent, over a private socket
        if job.frees:
            return_freed(KEPT_BYTES)
        if job.metered:
            pipe.report({"resting_bytes": PeakMeter().resting})
        session = sessions[job.backend]()
        arguments = {
            name: replace(value, report=pipe.report) if isinstance(value, Trial) else value
            for name, value in job.arguments.items()
        }
        if job.reports:
            arguments["report"] = pipe.report
        result = wire.encode(session.model if job.method == "model" else getattr(session, job.method)(**arguments))
        last = frame(frames.RESULT, result)
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises ends this job only
        failure = _failure(error, owners)
        code = int(failure.is_bug)
        last = frame(frames.FAILURE, wire.encode_failure(failure))
    try:
        pipe.end(last)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _failure(error: BaseException, owners: Mapping[What, str]) -> Failure:
    """Return what a job raised, with the plugin that is at fault where that is known."""
    try:
        if not isinstance(error, TunerError):
            trace = "".join(traceback.format_exception(error))
            return wire.failure(first_line(error), trace, is_bug=True)
        trace = trace_of_cause(error) if isinstance(error, ExtensionError | TaskError) else ""
        what = (error.what, error.kind) if isinstance(error, ExtensionError) else ("", "")
        owner = f"plugin {owners[what]!r}, " if what in owners else ""
        known = DivergedError.__name__ if isinstance(error, DivergedError) else ""
        unsupported = isinstance(error, UnsupportedError)
        return wire.failure(f"{owner}{error}", trace, unsupported=unsupported, edit=what[1], error=known)
    except BaseException as second:  # noqa: BLE001 - its own text may be what raises
        return wire.failure(f"{type(error).__name__}, whose text raised {type(second).__name__}", is_bug=True)


class _Reporter:
    """A job's end of the pipe: progress goes as fast as the parent reads it, or is dropped; the last word waits."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel, self._stop, self._reported = Channel(connection), threading.Event(), 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, progress: Mapping[str, Any]) -> bool:
        """Report progress and return whether the job is to stop.

        Raises:
            FrameError: It is no progress message.
        """
        if not isinstance(progress, Mapping):
            raise FrameError(f"a progress message must be a table of numbers and texts, got {progress!r:.100}")
        if any(name in progress for name in wire.OUT_OF):
            if time.monotonic() - self._reported < STEP_SECONDS:
                return self._stop.is_set()
            self._reported = time.monotonic()
        content = wire.encode(
            {name: value[: wire.LINE] if isinstance(value, str) else value for name, value in progress.items()}
        )
        with self._lock:
            if self._channel.unsent_bytes < MOST_UNSENT_BYTES:
                self._channel.post(frame(frames.PROGRESS, content))
        return self._stop.is_set()

    def end(self, last: bytes) -> None:
        """Say the last word, and wait until the parent has it."""
        with self._lock:
            self._channel.post(last)
            self._channel.send(LAST_WORD_SECONDS)

    def _watch(self) -> None:
        """Note a request to stop; end the process when the parent is gone; stop while the parent is stopped."""
        poll, server = select.poll(), os.getppid()
        poll.register(self._channel.fileno(), select.POLLIN)
        while True:
            if not poll.poll(1000 * LOOK_SECONDS):
                if state(server) == "T":
                    os.kill(0, signal.SIGSTOP)  # the parent continues it
                continue
            try:
                if not os.read(self._channel.fileno(), 64):
                    os._exit(EXIT_PARENT_GONE)
            except BlockingIOError:
                continue
            except OSError:
                os._exit(EXIT_PARENT_GONE)
            self._stop.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
