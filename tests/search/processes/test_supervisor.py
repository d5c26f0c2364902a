"""Jobs under guard: what comes back, what is killed, what is left behind."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plan.plans import PLAN
from tuner.errors import TunerError
from tuner.search.processes.child import STEP_SECONDS
from tuner.search.processes.guard import Interrupt, JobLimits, JobResult
from tuner.search.processes.messages import Failure, Job, Start
from tuner.search.processes.supervisor import Supervisor
from tuner.task import Task

pytestmark = [pytest.mark.slow, pytest.mark.cold]

MEGABYTE = 1_000_000
LONG = 60.0  # a busy machine takes its time; what never ends takes an hour
Run = Callable[..., JobResult[Any]]
ANSWER = Job("misbehaving", "answer", {"value": None}, reports=False)


def start(task: Task, *preload: str, many_jobs: bool = False) -> Start:
    return Start(preload, task, ("misbehaving",), many_jobs)


@pytest.fixture(scope="module")
def supervisor(plugin: Path, task: Task) -> Iterator[Supervisor]:
    with Supervisor(start(task)) as made:
        made.run(ANSWER, JobLimits())  # it is up: what follows measures jobs only
        yield made


@pytest.fixture
def run(supervisor: Supervisor) -> Run:
    def go(method: str, limits: JobLimits | None = None, **arguments: Any) -> JobResult[Any]:
        reports = method in {"heed", "hoard", "obey"}
        return supervisor.run(Job("misbehaving", method, arguments, reports), limits or JobLimits())

    return go


def test_a_result_crosses_and_every_job_has_a_process_of_its_own(run: Run) -> None:
    results = run("answer", value={"a": (1, 2)}), run("answer", value=None)
    assert [result.verdict for result in results] == ["result", "result"]
    first, second = (result.unwrap("a job") for result in results)
    assert first["value"] == {"a": [1, 2]}
    assert first["task"] == "made-up"
    assert first["array"] == [0, 1, 2]
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert not psutil.pid_exists(first["pid"])


def test_a_job_that_heeds_the_warning_gives_its_result(run: Run) -> None:
    now = time.monotonic()
    ended = run("heed", JobLimits(warn_at=now + 0.1, kill_at=now + LONG))
    assert (ended.verdict, ended.value) == ("result", "stopped in time")


def test_a_job_over_its_memory_is_killed_at_once(run: Run, tmp_path: Path) -> None:
    delays = []
    for attempt in range(3):
        note = tmp_path / f"crossed-{attempt}"
        ended = run("hoard", JobLimits(memory_bytes=40 * MEGABYTE), limit_mb=40, note=str(note))
        gone = time.monotonic()
        assert ended.verdict == "memory"
        assert ended.most_bytes > 40 * MEGABYTE
        # without a note it was gone before it could look
        delays.append(gone - float(note.read_text()) if note.exists() else 0.0)
    assert min(delays) < 0.1  # on a busy machine the watcher may wait for a core once


def test_an_exception_keeps_its_traceback(run: Run) -> None:
    ended = run("stumble")
    assert ended.verdict == "failure"
    assert ended.failure is not None
    assert ended.failure.text == "ValueError: this is no tensor"
    assert "misbehaving.py" in ended.failure.trace
    assert "in stumble" in ended.failure.trace
    with pytest.raises(RuntimeError, match="in stumble"):
        ended.unwrap("a job")


def test_the_users_mistake_is_one_line_without_a_traceback(run: Run) -> None:
    refused = run("refuse")
    assert refused.failure == Failure("rule, value, way out", "")
    with pytest.raises(TunerError, match=r"^rule, value, way out$"):
        refused.unwrap("a job")


def test_a_loss_term_that_is_at_fault_is_known_by_its_kind(run: Run) -> None:
    text = "loss term 'l2': it must return one loss per sample"
    assert run("lose").failure == Failure(text, "", edit="l2")


def test_a_result_that_cannot_cross_is_a_failure(run: Run) -> None:
    ended = run("hand_back_a_function")
    assert ended.verdict == "failure"
    assert ended.failure is not None
    assert ended.failure.text == "a message must be of numbers, texts, lists and tables: got function"


def test_calls_that_break_a_limit_say_which(run: Run) -> None:
    with pytest.raises(TunerError, match="the nap took longer than --time allows: give more time"):
        run("sleep", JobLimits(kill_at=time.monotonic() + 0.1)).unwrap("the nap")
    with pytest.raises(TunerError, match="the leave ended with exit code 7"):
        run("obey", code="os._exit(7)").unwrap("the leave")


def test_an_interrupt_ends_the_job_at_once(plugin: Path, task: Task) -> None:
    interrupt = Interrupt()
    with Supervisor(start(task), interrupt) as supervisor:
        supervisor.run(ANSWER, JobLimits())
        threading.Timer(0.2, interrupt.ask).start()
        ended = supervisor.run(Job("misbehaving", "sleep", {}, reports=False), JobLimits())
        assert ended.verdict == "interrupted"
        assert ended.seconds < LONG


def test_deadline_and_interrupt_count_while_the_libraries_load(
    plugin: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugin / "endless.py").write_text("import time\ntime.sleep(3600)\n")
    job = Job("misbehaving", "sleep", {}, reports=False)
    started = time.monotonic()
    with Supervisor(start(task, "endless")) as supervisor:
        assert supervisor.run(job, JobLimits(kill_at=started + 0.3)).verdict == "deadline"
        supervisor.interrupt.ask()
        assert supervisor.run(job, JobLimits()).verdict == "interrupted"
    assert time.monotonic() - started < LONG


def test_the_task_is_opened_once_before_the_first_job(plugin: Path, task: Task) -> None:
    with Supervisor(start(task, many_jobs=True)) as supervisor:
        first, second = (supervisor.run(ANSWER, JobLimits()).unwrap("a job") for _ in range(2))
    assert len(first["opened"]) == 1
    assert first["opened"] == second["opened"] != [first["pid"]]


def test_the_process_that_forks_is_prepared_for_a_plan_and_its_children_inherit_that(plugin: Path, task: Task) -> None:
    with Supervisor(start(task)) as supervisor:
        for plan in (PLAN, replace(PLAN, split=0)):
            ended = supervisor.run(replace(ANSWER, plan=plan), JobLimits()).unwrap("a job")
    assert [key for _, key in ended["prepared"]] == [PLAN.key(), replace(PLAN, split=0).key()]
    assert len({pid for pid, _ in ended["prepared"]} | {ended["pid"]}) == 2


def test_steps_are_reported_now_and_then_and_epochs_always(supervisor: Supervisor) -> None:
    heard: list[Mapping[str, Any]] = []
    took = supervisor.run(Job("misbehaving", "hurry", {}, reports=True), JobLimits(), heard.append).unwrap("a job")
    steps = [one for one in heard if "step" in one]
    assert 1 <= len(steps) <= 1 + took / STEP_SECONDS
    assert sum("epoch" in one for one in heard) == 2


def test_a_job_is_asked_to_stop_where_its_progress_is_enough(supervisor: Supervisor) -> None:
    ended = supervisor.run(Job("misbehaving", "heed", {}, reports=True), JobLimits(), lambda one: "step" in one)
    assert (ended.verdict, ended.value) == ("result", "stopped in time")


def test_what_opening_raised_is_reported_by_every_job(
    plugin: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moods").write_text("cold")
    monkeypatch.setenv("MISBEHAVING", str(tmp_path / "moods"))
    with Supervisor(start(task, many_jobs=True)) as supervisor:
        for _ in range(2):
            assert supervisor.run(ANSWER, JobLimits()).failure == Failure("the weights do not fit", "")


def test_a_task_that_cannot_be_loaded_is_reported_at_the_first_job(plugin: Path, tmp_path: Path) -> None:
    nowhere = Start((), str(tmp_path / "none.toml"), ("misbehaving",), many_jobs=False)
    with Supervisor(nowhere) as supervisor, pytest.raises(TunerError, match=r"none\.toml"):
        supervisor.run(ANSWER, JobLimits())


def test_asking_twice_ends_at_once() -> None:
    interrupt = Interrupt()
    interrupt.ask()
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()
    with pytest.raises(KeyboardInterrupt):
        interrupt.ask()


@pytest.mark.slow
def test_no_process_outlives_a_killed_parent(plugin: Path, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from tuner.search.processes.messages import Job, Start
            from tuner.search.processes.guard import JobLimits
            from tuner.search.processes.supervisor import Supervisor
            from tuner.task import Task, Domain, InputSpec, ModelSpec
            from tuner.task.data.samples import ArraySamples
            import numpy as np

            spec = InputSpec(kind="arrays")
            samples = ArraySamples(np.zeros((2, 1, 2, 2), np.float32), np.zeros(2, np.int64), spec, "made up")
            data = Domain(samples, samples)
            task = Task("made-up", ModelSpec("nowhere:build"), spec, "single-label", data, None, ("a",), (0,), (0,))
            with Supervisor(Start((), task, ("misbehaving",), many_jobs=False)) as supervisor:
                supervisor.run(Job("misbehaving", "spin", {{"note": {str(note)!r}}}, reports=False), JobLimits())
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)]) as parent:
        wait_for(lambda: note.exists() and len(note.read_text().split()) == 3)
        pids = [int(word) for word in note.read_text().split()]
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.kill()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def wait_for(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_ctrl_c_does_not_reach_the_other_process_while_it_is_imported(task: Task) -> None:
    with Supervisor(start(task)) as supervisor:
        status = Path(f"/proc/{supervisor._server.pid}/status").read_text(encoding="utf-8")
        assert int(re.findall(r"SigBlk:\s*(\w+)", status)[0], 16) >> (signal.SIGINT - 1) & 1
        assert supervisor.run(ANSWER, JobLimits()).verdict == "result"
        status = Path(f"/proc/{supervisor._server.pid}/status").read_text(encoding="utf-8")
        assert int(re.findall(r"SigIgn:\s*(\w+)", status)[0], 16) >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
