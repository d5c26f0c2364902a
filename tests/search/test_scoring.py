"""How the end of a trial's process is told."""

import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tuner.results.config import Budget
from tuner.results.records import TrialRecord
from tuner.search.processes.guard import JobResult
from tuner.search.scoring import record_of
from tuner.search.setting import Setting

NOTHING: Mapping[str, Any] = {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-signal.SIGSEGV, "its process was ended by SIGSEGV: a library or a plugin's native code crashed"),
        (-signal.SIGABRT, "its process was ended by SIGABRT: a library or a plugin's native code crashed"),
        (-signal.SIGKILL, "its process was ended by SIGKILL: another program or a user ended it"),
        (-signal.SIGTERM, "its process was ended by SIGTERM"),
        (-200, "its process was ended by signal 200"),
        (0, "its process ended with exit code 0: a library or a plugin ended it"),
        (42, "its process ended with exit code 42: a library or a plugin ended it"),
        (None, "its process ended its connection without a result, and had to be killed"),
        (3, "its process ended with exit code 3: a library or a plugin ended it"),
    ],
)
def test_a_crash_is_named_by_its_signal(code: int | None, reason: str, setting: Setting) -> None:
    record = record_of(setting, TrialRecord(0, "failed", None), JobResult("crashed", exit_code=code), 0.0, NOTHING)
    assert (record.state, record.reason) == ("failed", reason)


def test_memory_ran_out_only_where_the_system_says_so(setting: Setting) -> None:
    killed: JobResult[Any] = JobResult("crashed", exit_code=-signal.SIGKILL, out_of_memory=True)
    record = record_of(setting, TrialRecord(0, "failed", None), killed, 0.0, NOTHING)
    assert record.reason == "its process was ended by SIGKILL: the system ran out of memory"
    faulted: JobResult[Any] = JobResult("crashed", exit_code=-signal.SIGSEGV, out_of_memory=True)
    assert "native code" in record_of(setting, TrialRecord(0, "failed", None), faulted, 0.0, NOTHING).reason


@pytest.fixture
def setting() -> Setting:
    made = object.__new__(Setting)
    object.__setattr__(made, "limits", Budget())
    return made
