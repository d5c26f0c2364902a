"""Tune a task: run a study in a folder, within limits."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.commands.interruption import interrupted_as, stopping
from tuner.commands.run import Run
from tuner.commands.tune.session import NO_RUN, Tuning
from tuner.commands.tune.setup import RunSetup, check_study
from tuner.distribution import CANDIDATES, SWITCH, fetching, offered
from tuner.errors import RunError, UsageError, disk_error
from tuner.events import Event, Events, log
from tuner.machine.awake import CLOCK
from tuner.plugin.load.finding import local_plugin
from tuner.reading import kind_of, path_from, text_from
from tuner.results.folder import FILE, RunInfo, lock_folder, read_run
from tuner.results.prior.file import Prior
from tuner.results.records.config import RunConfig, RunRequest, task_file
from tuner.results.records.origin import is_own
from tuner.search.budget import check_seed
from tuner.search.folds import check_possible_folds
from tuner.search.listener import OPENING, Listener, together
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.process_tree import require_system
from tuner.search.processes.remote import open_remote
from tuner.search.setting import CLOSING_SECONDS, objectives_for
from tuner.search.space import load_prior
from tuner.search.trials.access import StudyAccess
from tuner.task import Task
from tuner.task.info import TaskOutline

STATUS = Path("/proc/self/stat")


@dataclass(frozen=True, kw_only=True)
class Call(RunRequest):
    """A run from Python: what is asked of it, and who hears of it.

    Attributes:
        takes_newest: Whether the front of the task's newest run is tried first where `earlier` names none.
        progress: Whether to show progress on stderr; by default on a terminal and in a notebook, unless `on_event` or
            `listener` is given. Every event is logged to the logger ``tuner.run`` in any case.
        on_event: Called with each event of `tuner.events`, in the calling thread: it should return at once. An
            exception that it raises ends the run, which can be continued with `resume`.
        listener: Receives progress as the command line does, before it becomes events.
        started: Clock (`tuner.machine.awake.CLOCK`) from which `time` counts; now where it is not given.
    """

    takes_newest: bool = True
    progress: bool | None = None
    on_event: Callable[[Event], object] | None = None
    listener: Listener | None = None
    started: float | None = None


def run(task: str | os.PathLike[str] | Task, **options: Any) -> Run:
    """Tune a task within limits; see `tuner.run`.

    Raises:
        TunerError: The task, the space, a plugin, a limit or the folder cannot be used as asked.
        KeyboardInterrupt: The user stopped it; the run can be resumed.
    """
    task, asked = as_text(task), Call(**options)
    setup = RunSetup(asked, asked.started)
    prior, end, most = _prior_of(setup), setup.end, setup.limits.memory_bytes
    listener, interrupt = _audience(asked), Interrupt()
    listener.ends(end)
    with ExitStack() as stack:
        stack.callback(listener.close)
        stack.enter_context(fetching(asked=asked.fetch))
        stack.enter_context(CLOCK.watched())
        folder = _install(task, setup, listener)
        stack.enter_context(stopping(interrupt))
        stack.callback(setup.close)
        task, folder = _chosen(task, setup, folder, listener, interrupt)
        host, backends = setup.host, setup.backends
        config = RunConfig.of(
            asked,
            task=text_from(_absolute(task)),
            seed=check_seed(asked.seed),
            limits=setup.limits,
            folds=setup.folds,
            sampler=None if asked.sampler is None else setup.space.sampler,
            plugins=tuple(map(text_from, host.local)),
            models=tuple(asked.models),
            study=check_study(host, asked),
        )
        setup.choose()
        for plugin in host.refused:
            listener.say(f"plugin {plugin.name} takes no part: {plugin.refused}")
        continues: bool | None = None
        if folder is not None and kind_of(folder) != "nothing":  # one that cannot be used is refused before any is made
            continues = stack.enter_context(lock_folder(folder, resume=asked.resume))
        listener.phase(OPENING)
        kill_at = None if end is None else end - CLOSING_SECONDS / 2
        opening = open_remote(
            *(host, task, backends),
            interrupt=interrupt,
            kill_at=kill_at,
            memory_bytes=most,
            many_jobs=True,
            looked=lambda done, of: listener.step("files", done, of),
            supervisor=setup.supervisor,
        )
        sessions = stack.enter_context(opening)
        outline = sessions[backends[0]].task
        check_possible_folds(setup.folds, outline)
        folder = folder or _folder_of(outline)
        listener.begins(folder)
        kept, again = f"interrupted; what was finished is kept in {folder}", f"out={str(folder)!r}, resume=True"
        stack.enter_context(interrupted_as(kept, f"to continue: tuner.run(..., {again})"))
        if continues is None:
            continues = stack.enter_context(lock_folder(folder, resume=asked.resume))
        access = stack.enter_context(_study(setup, listener, interrupt))
        config = replace(config, home=text_from(folder.resolve()))
        tuning = Tuning(setup, config, outline, folder, listener, interrupt, prior, access, asked.takes_newest)
        if continues:
            tuning.resume()
        try:
            tuning.tune(sessions, objectives_for(outline, setup.objectives))
        except OSError as error:
            if not folder.is_dir():
                raise RunError(f"{folder} is gone: it was removed while the run wrote to it: begin it anew") from None
            raise disk_error(error, folder, then=", then continue with --resume") or error from None
    result = Run.open(folder, None if isinstance(task, str) else task)
    listener.finished(result)
    return result


def _audience(asked: Call) -> Listener:
    """Return all that progress is reported to: the log, what the caller gave, and stderr where somebody looks."""
    receivers = (log,) if asked.on_event is None else (log, asked.on_event)
    own = [] if asked.listener is None else [asked.listener]
    if asked.progress or (asked.progress is None and asked.listener is None and asked.on_event is None):
        from tuner.commands.tune.progress import progress_shown

        own += progress_shown(anywhere=bool(asked.progress))
    return together([Events(*receivers), *own])


def _install(task: str | Task, setup: RunSetup, listener: Listener) -> Path | None:
    """Load the plugins, with those of a run that continues, and return its folder, if known by now."""
    setup.install()
    folder = None if setup.asked.out is None else Path(setup.asked.out)
    if setup.asked.resume:
        listener.phase(OPENING)
        if folder is None:  # its plugins have to be known before the task is opened for good
            with open_remote(setup.host, task, setup.backends[:1], kill_at=setup.end) as sessions:
                folder = _folder_of(next(iter(sessions.values())).task)
        if (folder / FILE).exists() and (recorded := plugins_of_run(read_run(folder), folder, setup.host.local)):
            setup.install(recorded)
    return folder


def _chosen(
    task: str | Task, setup: RunSetup, folder: Path | None, listener: Listener, interrupt: Interrupt
) -> tuple[str | Task, Path | None]:
    """Return the task with the model that is chosen for it, where there are several, and the run's folder."""
    if (point := offered(CANDIDATES).get("choose")) is not None:
        found: tuple[str | Task, Path | None] = point.load()(task, setup, folder, listener, interrupt)
        return found
    if setup.asked.models:
        raise UsageError(f"--model is for a plugin, and none that chooses models is on: change {SWITCH}")
    return task, folder


def _study(setup: RunSetup, listener: Listener, interrupt: Interrupt) -> AbstractContextManager[StudyAccess]:
    """Open the run's study; what was begun of it is given up with the block."""
    study, artifacts = setup.asked.study, setup.asked.artifacts
    if study is None:
        return nullcontext(StudyAccess())
    opener, most = setup.host.study(study), setup.limits.memory_bytes
    return opener.open(study, artifacts, listener.say, interrupt, setup.end, most)


def plugins_of_run(info: RunInfo, folder: Path, given: Iterable[str]) -> list[str]:
    """Return the local plugins that a run was made with, but for the given ones, which may now be elsewhere.

    Raises:
        RunError: There are such plugins, and the run was not made on this device.
    """
    names = {local_plugin(file).name for file in given}
    files = (path_from(info.config.found(file, folder)) for file in info.config.plugins)
    recorded = [file for file in files if local_plugin(file).name not in names]
    if recorded and not is_own(info.config, info.mark):
        raise RunError(
            f"{folder} has no mark of this device (it was made elsewhere, or before the cache was deleted), and its "
            f"plugin {recorded[0]} is code: read it, then give it by --plugin"
        )
    return recorded


def _folder_of(task: TaskOutline) -> Path:
    """Return a run's folder where the user names none: it is called as the task is."""
    return Path("runs") / path_from(task.info.name)


def _prior_of(setup: RunSetup) -> Prior | None:
    """Read what names the plans to try first: a mistake there is reported before the libraries are loaded."""
    asked, space = setup.asked, setup.space
    if asked.earlier is not None and asked.earlier != NO_RUN:
        if asked.prior is not None:
            raise UsageError("--from and --prior both name what to start from: give one of them")
        Run.open(asked.earlier)
    if asked.prior is not None:
        return load_prior(asked.prior)
    return load_prior(space.prior) if space.prior and asked.earlier is None else None


def process_started() -> float:
    """Return the clock (`tuner.machine.awake.CLOCK`) at which this process began, whatever the time of day did since.

    Raises:
        RunError: This system is not Linux, or its ``/proc`` cannot be read.
    """
    require_system()
    try:
        fields = STATUS.read_bytes().rpartition(b")")[2].split()
        ticks = int(fields[19])  # since the system's start; see proc(5)
    except OSError:
        raise RunError("tuner needs /proc, to see how much memory a trial takes: mount it") from None
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return CLOCK.now() - max(0.0, age)


def as_text(task: str | os.PathLike[str] | Task) -> str | Task:
    """Return what names a task as text, or the task."""
    if isinstance(task, str | Task):
        return task
    try:
        return os.fspath(task)
    except TypeError:
        raise UsageError(f"a task must be a text, a path or a tuner.Task, got a {type(task).__name__}") from None


def _absolute(task: str | Task) -> str:
    """Return the text that names a task wherever it is read from; of a task object, its name in angle brackets."""
    if not isinstance(task, str):
        return f"<{task.name}>"
    file, part = task_file(task)
    if part:
        return f"{os.path.abspath(file)}{task[len(file) :]}"  # noqa: PTH100 - the path may not exist yet
    return os.path.abspath(task) if kind_of(task) != "nothing" else task  # noqa: PTH100 - kept unresolved
