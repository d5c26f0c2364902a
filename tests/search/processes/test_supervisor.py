"""Jobs under guard: what comes back, what is killed, and that whatever a job does, nothing of it is left behind."""

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
from tuner.errors import MOST_LETTERS, MOST_TRACE, TunerError
from tuner.search.processes import guard
from tuner.search.processes.child import EXIT_PARENT_GONE, STEP_SECONDS
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


def test_a_job_stops_where_it_heeds_the_warning_or_is_told_that_its_progress_is_enough(supervisor: Supervisor) -> None:
    now, job = time.monotonic(), Job("misbehaving", "heed", {}, reports=True)
    warned = supervisor.run(job, JobLimits(warn_at=now + 0.1, kill_at=now + LONG))
    told = supervisor.run(job, JobLimits(), lambda progress: "step" in progress)
    assert [(ended.verdict, ended.value) for ended in (warned, told)] == [("result", "stopped in time")] * 2


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
    ended = run("obey", code="raise ValueError('this is no tensor\\nnor is this')")
    assert ended.verdict == "failure"
    assert ended.failure is not None
    assert ended.failure.text == "ValueError: this is no tensor"
    assert "misbehaving.py" in ended.failure.trace
    assert "in obey" in ended.failure.trace
    with pytest.raises(RuntimeError, match="in obey"):
        ended.unwrap("a job")


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (
            "from tuner.errors import TaskError; raise TaskError('rule, value,\\nway out')",
            Failure("rule, value, way out", ""),
        ),
        (
            "from tuner.backends.losses import LossError; raise LossError('l2', 'it must return one loss per sample')",
            Failure("loss term 'l2': it must return one loss per sample", "", edit="l2"),
        ),
        (
            "answer = lambda: None",
            Failure("a message must be of numbers, texts, lists and tables: got function", ""),
        ),
    ],
)
def test_a_mistake_is_one_line_without_a_traceback(code: str, failure: Failure, run: Run) -> None:
    refused = run("obey", code=code)
    assert refused.failure == failure
    with pytest.raises(TunerError, match=f"^{failure.text}$"):
        refused.unwrap("a job")


def test_calls_that_break_a_limit_say_which(run: Run) -> None:
    with pytest.raises(TunerError, match="the nap took longer than --time allows: give more time"):
        run("sleep", JobLimits(kill_at=time.monotonic() + 0.1)).unwrap("the nap")
    with pytest.raises(TunerError, match="the leave ended with exit code 7"):
        run("obey", code="os._exit(7)").unwrap("the leave")
    with pytest.raises(
        TunerError, match=r"^it took 5 MB, more than --memory allows \(by default most of what is free\)"
    ):
        JobResult("memory", most_bytes=5_000_000).unwrap("it")


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


def test_the_process_that_forks_opens_the_task_once_and_is_prepared_for_plans(plugin: Path, task: Task) -> None:
    with Supervisor(start(task, many_jobs=True)) as supervisor:
        first, second = (supervisor.run(ANSWER, JobLimits()).unwrap("a job") for _ in range(2))
        for plan in (PLAN, replace(PLAN, split=0)):
            ended = supervisor.run(replace(ANSWER, plan=plan), JobLimits()).unwrap("a job")
    assert len(first["opened"]) == 1
    assert first["opened"] == second["opened"] != [first["pid"]]
    assert [key for _, key in ended["prepared"]] == [PLAN.key(), replace(PLAN, split=0).key()]
    assert len({pid for pid, _ in ended["prepared"]} | {ended["pid"]}) == 2


def test_steps_are_reported_now_and_then_and_epochs_always(supervisor: Supervisor) -> None:
    heard: list[Mapping[str, Any]] = []
    took = supervisor.run(Job("misbehaving", "hurry", {}, reports=True), JobLimits(), heard.append).unwrap("a job")
    steps = [one for one in heard if "step" in one]
    assert 1 <= len(steps) <= 1 + took / STEP_SECONDS
    assert sum("epoch" in one for one in heard) == 2


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
        try:
            wait_for(lambda: note.exists() and len(note.read_text().split()) == 3)
            pids = [int(word) for word in note.read_text().split()]
            assert all(psutil.pid_exists(pid) for pid in pids)
        finally:
            parent.kill()  # it would go on for ever, and so would this test
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def wait_for(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_ctrl_c_does_not_reach_the_other_process_while_it_is_imported(task: Task) -> None:
    def holds(kind: str) -> bool:
        status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
        return bool(int(re.findall(rf"{kind}:\s*(\w+)", status)[0], 16) >> (signal.SIGINT - 1) & 1)

    before = {child.pid for child in psutil.Process().children()}
    with Supervisor(start(task)) as supervisor:
        (server,) = (child for child in psutil.Process().children() if child.pid not in before)
        assert holds("SigBlk")
        assert supervisor.run(ANSWER, JobLimits()).verdict == "result"
        assert holds("SigIgn")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


LATE = 5.0  # a busy machine takes its time; what hangs takes an hour
HOARD = "held = []\nwhile True: held.append(b'1' * 1_000_000); time.sleep(0.001)"
Obey = Callable[..., JobResult[Any]]


@pytest.fixture
def obey(supervisor: Supervisor) -> Obey:
    """Run lines of Python as a job; whatever they do, the next job has its answer."""

    def go(code: str, seconds: float | None = None, **limits: int) -> JobResult[Any]:
        kill_at = None if seconds is None else time.monotonic() + seconds
        job = Job("misbehaving", "obey", {"code": code}, reports=True, file_bytes=limits.get("file_bytes"))
        ended = supervisor.run(job, JobLimits(kill_at=kill_at, **limits))
        assert kill_at is None or time.monotonic() < kill_at + LATE
        assert supervisor.run(ANSWER, JobLimits()).verdict == "result"
        return ended

    return go


@pytest.mark.parametrize(
    "code",
    [
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)",
        "import re; re.fullmatch('(a+)+', 'a' * 60 + 'b')",
        "os.write(pipe, bytes(6) + bytes([1, 0]) + b'half of it'); time.sleep(3600)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "while True: report({'epoch': 1, 'loss': 1.0})",
    ],
    ids=["ignores signals", "spins in C", "half a message", "stops itself", "reports endlessly"],
)
def test_it_ends_at_its_deadline(code: str, obey: Obey) -> None:
    assert obey(code, 0.3).verdict == "deadline"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("report(None)", "a progress message must be a table of numbers and texts, got None"),
        ("report({'step': 1})", "a progress message must give steps as a number, got None"),
        ("report({'loss': 'high'})", "a progress message must give loss as a number, got 'high'"),
        ("report({'loss': float('nan')}); answer = '1' * 5_000_000", "a message of 5,000,013 bytes is too long"),
    ],
)
def test_what_is_no_message_fails_the_job_in_one_line(code: str, line: str, obey: Obey) -> None:
    ended = obey(f"{code}; time.sleep(0 if 'answer' in globals() else 3600)")
    assert ended.verdict == "failure"
    assert ended.failure is not None
    assert line in ended.failure.text
    assert "\n" not in ended.failure.text


def test_texts_of_an_exception_are_cut(obey: Obey) -> None:
    ended = obey("raise ValueError('x\\x1b[31m' * 6_000_000)")
    assert ended.failure is not None
    assert ended.failure.text.startswith(r"ValueError: x\x1b[31mx")
    assert len(ended.failure.text) <= MOST_LETTERS + 1
    assert len(ended.failure.trace) <= MOST_TRACE + 100
    assert "characters are left out" in ended.failure.trace
    second = obey("class Bad(Exception): __str__ = lambda self: 1 / 0\nraise Bad")
    assert second.failure is not None
    assert second.failure.text == "Bad: its text raised ZeroDivisionError"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("os._exit(0)", 0),
        ("os._exit(42)", 42),
        *((f"os.kill(os.getpid(), {number})", -number) for number in (9, 11, 15)),
        ("os.write(pipe, bytes(6) + bytes([1, 0]) + b'half of it'); os._exit(3)", 3),
        ("if os.fork() == 0: time.sleep(3600)\nos._exit(3)", 3),  # what it forked lives on
    ],
)
def test_an_end_without_a_result_is_known_by_its_code(code: str, exit_code: int, obey: Obey) -> None:
    ended = obey(code, LONG)
    assert (ended.verdict, ended.exit_code, ended.out_of_memory) == ("crashed", exit_code, False)


def test_a_job_that_hangs_up_is_killed(obey: Obey) -> None:
    ended = obey("import socket; socket.socket(fileno=pipe).shutdown(socket.SHUT_WR); time.sleep(3600)", 0.5)
    assert ended.verdict == "crashed"
    assert ended.exit_code in {None, EXIT_PARENT_GONE}  # killed, unless it notices first that it is not heard


def test_what_a_job_has_started_ends_with_it(obey: Obey, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(note)!r}, "w").write(str(os.getpid()))
        time.sleep(3600)
    os._exit(0)
while not os.path.exists({str(note)!r}) or not open({str(note)!r}).read(): time.sleep(0.01)
"""
    assert obey(code).verdict == "result"
    gone = int(note.read_text())
    assert not psutil.pid_exists(gone) or psutil.Process(gone).status() == psutil.STATUS_ZOMBIE


def test_a_job_that_forks_on_and_on_is_killed_with_all_of_them(obey: Obey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_PROCESSES", 16)
    ended = obey("for at in range(6): time.sleep(0.02); os.fork()\ntime.sleep(3600)")
    assert ended.failure is not None
    assert ended.failure.text == "it started more than 16 processes, and was killed"
    forked = psutil.Process(obey("answer = os.getppid()").value).children(recursive=True)
    assert [one.pid for one in forked if one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize(
    "code",
    [
        f"if os.fork() == 0: os.setsid()\n{HOARD}",
        "import mmap\nheld = mmap.mmap(-1, 10**8)\nfor at in range(100): held.write(b'1' * 10**6)\ntime.sleep(3600)",
    ],
    ids=["in a child", "shared"],
)
def test_memory_of_children_and_shared_memory_count(code: str, obey: Obey) -> None:
    ended = obey(code, memory_bytes=40 * MEGABYTE)
    assert ended.verdict == "memory"
    assert ended.most_bytes > 40 * MEGABYTE


def test_processes_that_share_memory_are_counted_once(obey: Obey) -> None:
    code = "held = b'1' * 25_000_000\nfor at in range(3):\n    if os.fork() == 0: time.sleep(3600)\ntime.sleep(0.3)"
    assert obey(code, memory_bytes=60 * MEGABYTE).verdict == "result"  # four times 25 MB are more


def test_a_file_is_no_longer_than_storage_allows(obey: Obey, tmp_path: Path) -> None:
    path = tmp_path / "endless"
    ended = obey(f"file = open({str(path)!r}, 'wb', 0)\nwhile True: file.write(b'1' * 1000)", file_bytes=MEGABYTE)
    assert ended.failure is not None
    assert "File too large" in ended.failure.text
    assert path.stat().st_size == MEGABYTE


def test_a_process_that_forks_and_is_ended_once_is_started_again_with_the_job(obey: Obey, tmp_path: Path) -> None:
    note = tmp_path / "again"
    end = f"open({str(note)!r}, 'w').close(); os.kill(os.getppid(), signal.SIGKILL); time.sleep(3600)"
    assert obey(f"if not os.path.exists({str(note)!r}): {end}\nanswer = 'done'").value == "done"
