"""A process that has loaded the libraries opens another task in place of its own."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import TunerError
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.supervisor import Supervisor
from tuner.task import Task

pytestmark = [pytest.mark.slow, pytest.mark.cold]


def answered(supervisor: Supervisor) -> dict[str, Any]:
    """Return what a job says of its task, and of the processes in which one was opened."""
    job = Job("misbehaving", "answer", {"value": None}, reports=False)
    found: dict[str, Any] = supervisor.run(job, JobLimits()).unwrap("a job")
    return found


def test_another_task_is_opened_in_the_same_process_and_in_a_new_one_where_that_is_gone(
    plugin: Path, task: Task, tmp_path: Path
) -> None:
    first, second = (Start((), one, ("misbehaving",), many_jobs=True) for one in (task, replace(task, name="another")))
    with Supervisor(first) as supervisor:
        before = answered(supervisor)
        supervisor.reopen(second)
        assert supervisor.task(JobLimits()).info.name == "another"
        after = answered(supervisor)
        assert (before["task"], after["task"]) == (task.name, "another")
        assert after["opened"] == 2 * before["opened"]
        os.kill(before["opened"][0], signal.SIGKILL)
        supervisor.reopen(first)
        with pytest.raises(TunerError, match="process"):
            supervisor.task(JobLimits())
        supervisor.close()
        supervisor.reopen(first)
        anew = answered(supervisor)
        assert anew["task"] == task.name
        assert anew["opened"] != before["opened"]
        supervisor.reopen(Start((), str(tmp_path / "none.toml"), ("misbehaving",), many_jobs=False))
        with pytest.raises(TunerError, match=r"none\.toml"):
            answered(supervisor)
