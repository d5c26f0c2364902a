"""Jobs under guard: what comes back, what is killed, what is left behind."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tuner.errors import TunerError
from tuner.search.jobs import Failure, Job
from tuner.search.supervisor import Ended, Interrupt, Limits, Supervisor
from tuner.task import Task

MEGABYTE = 1_000_000
LONG = 60.0  # a busy machine takes its time; what never ends takes an hour
Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def supervisor(plugin: Path, task: Task) -> Iterator[Supervisor]:
    with Supervisor((), task) as made:
        made.call("misbehaving", "answer", {"value": None})  # it is up: what follows measures jobs only
        yield made


@pytest.fixture
def run(supervisor: Supervisor) -> Run:
    def go(method: str, limits: Limits | None = None, **arguments: Any) -> Ended:
        reports = method in {"deaf", "heed", "hoard"}
        return supervisor.run(Job("misbehaving", method, arguments, reports), limits or Limits())

    return go


def test_a_result_crosses_and_every_job_has_a_process_of_its_own(run: Run) -> None:
    first, second = run("answer", value={"a": (1, 2)}), run("answer", value=None)
    assert first.verdict == second.verdict == "result"
    assert first.value["value"] == {"a": (1, 2)}
    assert first.value["task"] == "made-up"
    assert np.array_equal(first.value["array"], [0, 1, 2])
    assert len({first.value["pid"], second.value["pid"], os.getpid()}) == 3
    assert not psutil.pid_exists(first.value["pid"])


def test_a_job_that_sleeps_forever_is_killed_at_its_deadline(run: Run) -> None:
    started = time.monotonic()
    ended = run("sleep", Limits(kill_at=started + 0.3))
    assert ended.verdict == "deadline"
    assert 0.3 <= time.monotonic() - started < LONG


def test_a_job_that_heeds_the_warning_gives_its_result(run: Run) -> None:
    now = time.monotonic()
    ended = run("heed", Limits(warn_at=now + 0.1, kill_at=now + LONG))
    assert (ended.verdict, ended.value) == ("result", "stopped in time")


def test_a_job_that_ignores_the_warning_is_killed(run: Run) -> None:
    now = time.monotonic()
    ended = run("deaf", Limits(warn_at=now + 0.1, kill_at=now + 0.4))
    assert ended.verdict == "deadline"
    assert time.monotonic() - now < LONG


def test_a_job_over_its_memory_is_killed_at_once(run: Run, tmp_path: Path) -> None:
    delays = []
    for attempt in range(3):
        note = tmp_path / f"crossed-{attempt}"
        ended = run("hoard", Limits(memory_bytes=40 * MEGABYTE), limit_mb=40, note=str(note))
        gone = time.monotonic()
        assert ended.verdict == "memory"
        assert ended.most_bytes > 40 * MEGABYTE
        # without a note it was gone before it could look
        delays.append(gone - float(note.read_text()) if note.exists() else 0.0)
    assert min(delays) < 0.1  # on a busy machine the watcher may wait for a core once


def test_a_crash_is_told_by_its_exit_code(run: Run) -> None:
    left, faulted = run("leave", code=9), run("fault")
    assert (left.verdict, left.value) == ("crashed", 9)
    assert (faulted.verdict, faulted.value) == ("crashed", -11)
    assert run("answer", value=1).verdict == "result"


def test_an_exception_keeps_its_traceback(run: Run) -> None:
    ended = run("stumble")
    assert ended.verdict == "failure"
    assert isinstance(ended.value, Failure)
    assert ended.value.text == "ValueError: this is no tensor"
    assert "misbehaving.py" in ended.value.trace
    assert "in stumble" in ended.value.trace


def test_the_users_mistake_is_one_line_without_a_traceback(run: Run, supervisor: Supervisor) -> None:
    assert run("refuse").value == Failure("rule, value, way out", "")
    with pytest.raises(TunerError, match=r"^rule, value, way out$"):
        supervisor.call("misbehaving", "refuse", {})


def test_a_call_that_stumbles_is_a_bug_with_the_childs_traceback(supervisor: Supervisor) -> None:
    with pytest.raises(RuntimeError, match="in stumble"):
        supervisor.call("misbehaving", "stumble", {})


def test_a_result_that_cannot_cross_is_a_failure(run: Run) -> None:
    ended = run("hand_back_a_function")
    assert ended.verdict == "failure"
    assert "pickle" in ended.value.text.lower()


def test_calls_that_break_a_limit_say_which(supervisor: Supervisor) -> None:
    with pytest.raises(TunerError, match="sleep took longer than --time: give more"):
        supervisor.call("misbehaving", "sleep", {}, Limits(kill_at=time.monotonic() + 0.1))
    with pytest.raises(TunerError, match="leave ended with exit code 7"):
        supervisor.call("misbehaving", "leave", {"code": 7})


def test_the_end_of_the_process_behind_is_said_in_one_line(plugin: Path, task: Task) -> None:
    job = Job("misbehaving", "answer", {"value": 1}, reports=False)
    with Supervisor((), task) as supervisor:
        assert supervisor.run(job, Limits()).verdict == "result"
        supervisor._process.kill()
        supervisor._process.wait()
        with pytest.raises(TunerError, match="was ended from outside: --resume goes on"):
            supervisor.run(job, Limits())


def test_an_interrupt_ends_the_job_at_once(plugin: Path, task: Task) -> None:
    interrupt = Interrupt()
    with Supervisor((), task, interrupt) as supervisor:
        supervisor.call("misbehaving", "answer", {"value": None})
        threading.Timer(0.2, interrupt.ask).start()
        ended = supervisor.run(Job("misbehaving", "sleep", {}, reports=False), Limits())
        assert ended.verdict == "interrupted"
        assert ended.seconds < LONG


def test_deadline_and_interrupt_count_while_the_libraries_load(
    plugin: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugin / "endless.py").write_text("import time\ntime.sleep(3600)\n")
    job = Job("misbehaving", "sleep", {}, reports=False)
    started = time.monotonic()
    with Supervisor(("endless",), task) as supervisor:
        assert supervisor.run(job, Limits(kill_at=started + 0.3)).verdict == "deadline"
        supervisor.interrupt.ask()
        assert supervisor.run(job, Limits()).verdict == "interrupted"
    assert time.monotonic() - started < LONG


def test_what_every_job_needs_is_loaded_once_before_the_first(plugin: Path, task: Task) -> None:
    with Supervisor((), task, warm=("misbehaving", "unknown")) as supervisor:
        first, second = (supervisor.call("misbehaving", "answer", {"value": None}) for _ in range(2))
    assert len(first["warmed"]) == 1
    assert first["warmed"] == second["warmed"] != [first["pid"]]


def test_loading_that_fails_is_left_for_the_job_to_tell(
    plugin: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moods").write_text("cold")
    monkeypatch.setenv("MISBEHAVING", str(tmp_path / "moods"))
    with Supervisor((), task, warm=("misbehaving",)) as supervisor:
        assert supervisor.call("misbehaving", "answer", {"value": 1})["warmed"] == []


def test_a_task_that_cannot_be_loaded_is_told_at_the_first_job(plugin: Path, tmp_path: Path) -> None:
    with Supervisor((), str(tmp_path / "none.toml")) as supervisor, pytest.raises(TunerError, match=r"none\.toml"):
        supervisor.call("misbehaving", "answer", {"value": None})


def test_asking_twice_ends_at_once() -> None:
    interrupt = Interrupt()
    interrupt.ask()
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()
    with pytest.raises(KeyboardInterrupt):
        interrupt.ask()


def test_no_process_outlives_a_killed_parent(plugin: Path, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from tuner.search.jobs import Job
            from tuner.search.supervisor import Limits, Supervisor
            from tuner.task import Task, Domain, InputSpec, ModelSpec
            from tuner.task.samples import ArraySamples
            import numpy as np

            spec = InputSpec(kind="arrays")
            samples = ArraySamples(np.zeros((2, 1, 2, 2), np.float32), np.zeros(2, np.int64), spec, "made up")
            data = Domain(samples, samples)
            task = Task("made-up", ModelSpec("nowhere:build"), spec, "single-label", data, None, ("a",), (0,), (0,))
            with Supervisor((), task) as supervisor:
                supervisor.run(Job("misbehaving", "sleep", {{"note": {str(note)!r}}}, reports=False), Limits())
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)]) as parent:
        wait_for(lambda: note.exists() and len(note.read_text().split()) == 2)
        pids = [int(word) for word in note.read_text().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def wait_for(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
