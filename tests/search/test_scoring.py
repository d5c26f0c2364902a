"""The record of a trial: its values, and how the end of its process is named."""

import math
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tuner.plan.trial import TrialPlan
from tuner.planner.device import NOMINAL_FLOPS
from tuner.planner.tail_terms import forward_flops
from tuner.results.records.trial import Outcome, TrialRecord
from tuner.search.processes.guard import JobResult
from tuner.search.scoring import record_of, scored_record
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
    ],
)
def test_a_crash_is_named_by_its_signal(code: int | None, reason: str, setting: Setting) -> None:
    record = record_of(setting, TrialRecord(0, "failed", None), JobResult("crashed", exit_code=code), 0.0, NOTHING)
    assert (record.state, record.reason) == ("failed", reason)


def test_memory_ran_out_only_where_the_system_says_so(setting: Setting) -> None:
    killed: JobResult[Any] = JobResult("crashed", exit_code=-signal.SIGKILL, out_of_memory=True)
    record = record_of(setting, TrialRecord(0, "failed", None), killed, 0.0, NOTHING)
    assert record.reason.startswith("its process was ended by SIGKILL: out of memory ")
    assert "--memory" in record.reason
    assert (record.state, set(record.constraint)) == ("killed", {"memory"})
    faulted: JobResult[Any] = JobResult("crashed", exit_code=-signal.SIGSEGV, out_of_memory=True)
    assert "native code" in record_of(setting, TrialRecord(0, "failed", None), faulted, 0.0, NOTHING).reason


def test_a_trials_latency_is_its_share_of_the_whole_models(setting: Setting, plan: TrialPlan) -> None:
    base = TrialRecord(trial=0, state="failed", plan=plan)
    values = {"local_accuracy": 0.5, "global_accuracy": 0.5, "train_seconds": 1.0, "peak_bytes": 1.0}
    setting = replace(setting, rates=replace(setting.rates, latency_seconds=0.04))
    whole = scored_record(setting, base, Outcome(values), 0.0, {}).values
    assert (whole["mean_latency_seconds"], whole["mean_flops"]) == (0.04, forward_flops(plan))
    timed = {**values, "mean_latency_seconds": 1.0, "whole_latency_seconds": 2.0, "mean_flops": 5e9}
    assert scored_record(setting, base, Outcome(timed), 0.0, {}).values["mean_latency_seconds"] == pytest.approx(0.02)
    counted = scored_record(replace(setting, deterministic=True), base, Outcome(timed), 0.0, {}).values
    assert counted["mean_latency_seconds"] == 5e9 / NOMINAL_FLOPS


def test_a_trial_without_a_value_keeps_the_notes_that_say_why(setting: Setting, plan: TrialPlan) -> None:
    base = TrialRecord(trial=0, state="failed", plan=plan)
    values = {"local_accuracy": 0.5, "global_accuracy": 0.5, "train_seconds": 1.0, "peak_bytes": math.nan}
    record = scored_record(setting, base, Outcome(values, notes=("no sensor",)), 0.0, {})
    assert (record.state, record.reason) == ("failed", "it gave no finite value of peak_bytes")
    assert record.notes == ("no sensor",)
