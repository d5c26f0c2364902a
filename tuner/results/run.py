"""A run, read from its folder."""

from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import RunError
from tuner.results.folder import RunInfo, read_records, read_run
from tuner.results.objectives import Objective
from tuner.results.pareto import front, knee
from tuner.results.records import TrialRecord, comparable
from tuner.task import Task


@dataclass(frozen=True, slots=True)
class Run:
    """A finished or interrupted run, read from its folder.

    Attributes:
        folder: The run's folder.
        info: What was asked and what was spent.
        records: Every trial, in order.
        front: Numbers of the Pareto-optimal trials.
        knee: The balanced one of these; None where the front is empty.
        task: The task, where it was given as an object; None where the run holds its name or file.
    """

    folder: Path
    info: RunInfo
    records: tuple[TrialRecord, ...]
    front: tuple[int, ...]
    knee: int | None
    task: Task | None = field(default=None, repr=False, compare=False)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The study's objectives."""
        return self.info.objectives

    def record(self, trial: int) -> TrialRecord:
        """Return a trial's record.

        Raises:
            RunError: There is no such trial.
        """
        for record in self.records:
            if record.trial == trial:
                return record
        raise RunError(f"{self.folder} has no trial {trial}: it has 0 to {len(self.records) - 1}")

    @classmethod
    def open(cls, folder: str | Path, task: Task | None = None) -> "Run":
        """Read a run.

        Args:
            folder: The run's folder.
            task: Needed to export a run that was made from a task object and not from a file or a name.

        Raises:
            RunError: The folder is not a run's.
        """
        path = Path(folder)
        info = read_run(path)
        records = read_records(path, info.template)
        members = comparable(records)
        best = tuple(front(members, info.objectives))
        middle = knee({trial: members[trial] for trial in best}, info.objectives, info.untouched)
        return cls(path, info, records, best, middle, task)
