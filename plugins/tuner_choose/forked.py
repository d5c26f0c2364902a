"""Candidates in processes of their own: what one breaks, or takes, is not the run's."""

import math
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tuner.distribution import PUBLISHERS, offered
from tuner.machine.awake import CLOCK
from tuner.machine.control_group import usable_processors
from tuner.search.processes.guard import Interrupt, JobLimits
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.supervisor import Supervisor
from tuner_choose.halving import Seen
from tuner_choose.passing import NAME, Candidates

if TYPE_CHECKING:
    from tuner.commands.tune.setup import RunSetup
    from tuner.task.info import TaskOutline


class Forked:
    """A process that has opened a task, from which one is forked for each look of a candidate.

    It ends with the block, unless it was handed over.

    Args:
        task: What names the task.
        file: The task file.
        setup: What is asked of the run, whose limits hold.
        interrupt: The user's request to stop.
        factories: `model.factory` of each candidate; the libraries that they need are imported once, not for each look.

    Attributes:
        end: Clock (`tuner.machine.awake.CLOCK`) at which what still runs is ended; infinite for no limit.
    """

    def __init__(
        self, task: str, file: Path, setup: "RunSetup", interrupt: Interrupt, factories: Collection[str]
    ) -> None:
        host, own = setup.host, str(Path(__file__).with_name("passing.py"))
        start = Start(
            tuple(Candidates.preload),
            task,
            (NAME,),
            many_jobs=False,
            plugins=(*host.local, own),
            refused=host.unwanted,
            memory_bytes=setup.limits.memory_bytes,
            optional=_builders(factories),
        )
        self._file, self._setup, self._process, self._files = file, setup, ExitStack(), ExitStack()
        self.end = math.inf if setup.end is None else setup.end
        self._scratch = Path(self._files.enter_context(TemporaryDirectory())) / "features.npz"
        self._supervisor = self._process.enter_context(Supervisor(start, interrupt))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._files, self._process:  # the process first, which may be writing a file
            pass

    def hand_over(self) -> Supervisor:
        """Return the supervisor; its process is not ended with this block."""
        self._process.pop_all()
        return self._supervisor

    def wait_open(self) -> None:
        """Wait until the libraries are loaded; a `BudgetError` when time is up."""
        self._supervisor.wait_open(self._limits())

    def _limits(self, memory_bytes: int | None = None) -> JobLimits:
        return JobLimits(kill_at=self.end if math.isfinite(self.end) else None, memory_bytes=memory_bytes)

    @property
    def outline(self) -> "TaskOutline":
        """The task without its samples; a `TaskError` where it cannot be opened, a `BudgetError` when time is up."""
        return self._supervisor.task(self._limits())

    def look(self, values: dict[str, Any], begin: int, upto: int, within: float) -> Seen:
        """Let a candidate see samples.

        Args:
            values: Content of the task file with it as its model.
            begin: First sample, in an order of which every beginning is stratified.
            upto: The one after the last.
            within: Seconds after which no further batch begins.

        Raises:
            TunerError: It cannot be opened, or broke a limit of the run.
            RuntimeError: Its code raised something else.
        """
        started, memory = CLOCK.now(), self._setup.limits.memory_bytes
        threads = 1 if self._setup.asked.deterministic else usable_processors()
        asked: dict[str, Any] = {"values": values, "path": self._file, "begin": begin, "end": upto}
        asked |= {"within": within, "threads": threads, "file": self._scratch}
        asked["counts_flops"] = self._setup.asked.deterministic
        job = Job(NAME, "run", asked, reports=False, metered=memory is not None)
        costs = self._supervisor.run(job, self._limits(memory)).unwrap("its pass over the samples")
        with np.load(self._scratch) as found:
            features, labels = found["features"], found["labels"]
        counts = {key: costs[key] for key in ("seconds_per_sample", "latency_seconds", "bytes", "peak_bytes", "flops")}
        return Seen(features, labels, CLOCK.now() - started, **counts)


def _builders(factories: Collection[str]) -> tuple[str, ...]:
    """Return the modules that build the networks of these factories."""
    used = {factory.partition(":")[0] for factory in factories}
    return tuple(point.module for name, point in offered(PUBLISHERS).items() if name in used)
