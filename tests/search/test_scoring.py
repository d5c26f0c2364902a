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
        (-signal.SIGKILL, "its process was ended by SIGKILL: the system may have run out of memory"),
        (-signal.SIGTERM, "its process was ended by SIGTERM"),
        (-200, "its process was ended by signal 200"),
        (3, "its process ended with exit code 3: a library or a plugin ended it"),
    ],
)
def test_a_crash_is_named_by_its_signal(code: int, reason: str, setting: Setting) -> None:
    record = record_of(setting, TrialRecord(0, "failed", None), JobResult("crashed", exit_code=code), 0.0, NOTHING)
    assert (record.state, record.reason) == ("failed", reason)


@pytest.fixture
def setting() -> Setting:
    made = object.__new__(Setting)
    object.__setattr__(made, "limits", Budget())
    return made
