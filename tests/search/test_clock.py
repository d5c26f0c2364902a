"""The time of day may be set back or forward while a run is on: its time is that of a clock that only goes forward."""

import itertools
import time
from pathlib import Path

import psutil
import pytest

from tests.search.conftest import Tune
from tuner.commands.tune.run import process_started
from tuner.errors import RunError

DAY = 86_400.0


def test_a_clock_that_is_set_back_and_forward_changes_neither_the_end_nor_the_time_spent(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, now = itertools.cycle((-DAY, 0.0, DAY)), time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(steps))
    begun = time.monotonic()
    first = tune(time="60s", trials=2)
    again = tune(time="60s", trials=3, resume=True)
    took = time.monotonic() - begun
    assert (first.info.ended, again.info.ended) == ("2 trials are done", "3 trials are done")
    assert 0 < first.info.spent.seconds < again.info.spent.seconds <= took < 60


@pytest.mark.parametrize("step", [-DAY, DAY])
def test_the_start_of_this_process_does_not_depend_on_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    age = time.time() - psutil.Process().create_time()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + step)
    assert time.monotonic() - process_started() == pytest.approx(age, abs=1.0)


def test_a_system_without_proc_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tuner.commands.tune.run.STATUS", tmp_path / "none")
    with pytest.raises(RunError, match="tuner needs /proc, to see how much memory a trial takes: mount it"):
        process_started()
