"""Jobs that break down, hang, or take too much: the parent answers in time, and leaves nothing of them behind."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.errors import MOST_LETTERS, MOST_TRACE
from tuner.search.processes import guard
from tuner.search.processes.child import EXIT_PARENT_GONE
from tuner.search.processes.guard import JobLimits, JobResult
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.supervisor import Supervisor
from tuner.task import Task

pytestmark = [pytest.mark.slow, pytest.mark.cold]
MEGABYTE = 1_000_000
LONG = 60.0
LATE = 5.0  # a busy machine takes its time; what hangs takes an hour
ANSWER = Job("misbehaving", "answer", {"value": 1}, reports=False)
HOARD = "held = []\nwhile True: held.append(b'1' * 1_000_000); time.sleep(0.001)"
Obey = Callable[..., JobResult[Any]]


@pytest.fixture(scope="module")
def supervisor(plugin: Path, task: Task) -> Iterator[Supervisor]:
    with Supervisor(Start((), task, ("misbehaving",), many_jobs=False)) as made:
        made.run(ANSWER, JobLimits())
        yield made


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


def test_numbers_of_numpy_are_numbers(obey: Obey) -> None:
    ended = obey("import numpy as np; report({'loss': np.float32(1)}); answer = np.float32(0.5), np.int64(3)")
    assert ended.value == [0.5, 3]


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
    ],
)
def test_an_end_without_a_result_is_known_by_its_code(code: str, exit_code: int, obey: Obey) -> None:
    ended = obey(code)
    assert (ended.verdict, ended.exit_code, ended.out_of_memory) == ("crashed", exit_code, False)


def test_a_job_that_hangs_up_is_killed(obey: Obey) -> None:
    ended = obey("import socket; socket.socket(fileno=pipe).shutdown(socket.SHUT_WR); time.sleep(3600)", 0.5)
    assert ended.verdict == "crashed"
    assert ended.exit_code in {None, EXIT_PARENT_GONE}  # killed, unless it notices first that it is not heard


def test_a_message_that_is_cut_off_is_a_crash(obey: Obey) -> None:
    ended = obey("os.write(pipe, bytes(6) + bytes([1, 0]) + b'half of it'); os._exit(3)")
    assert (ended.verdict, ended.exit_code) == ("crashed", 3)


def test_a_crash_is_noticed_where_a_process_that_it_forked_lives_on(obey: Obey) -> None:
    ended = obey("if os.fork() == 0: time.sleep(3600)\nos._exit(3)", LONG)
    assert (ended.verdict, ended.exit_code) == ("crashed", 3)


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


def test_a_job_that_forks_on_and_on_is_killed_with_all_of_them(
    obey: Obey, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_PROCESSES", 16)
    ended = obey("for at in range(6): time.sleep(0.02); os.fork()\ntime.sleep(3600)")
    assert ended.failure is not None
    assert ended.failure.text == "it started more than 16 processes, and was killed"
    forked = psutil.Process(supervisor._server.pid).children(recursive=True)
    assert [one.pid for one in forked if one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize(
    "code",
    [
        f"{HOARD}",
        f"if os.fork() == 0: os.setsid()\n{HOARD}",
        "import mmap\nheld = mmap.mmap(-1, 10**8)\nfor at in range(100): held.write(b'1' * 10**6)\ntime.sleep(3600)",
    ],
    ids=["its own", "in a child", "shared"],
)
def test_all_memory_of_a_job_counts(code: str, obey: Obey) -> None:
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


def test_a_job_that_ends_the_process_that_forks_has_failed(plugin: Path, task: Task) -> None:
    with Supervisor(Start((), task, ("misbehaving",), many_jobs=False)) as supervisor:
        code = "os.kill(os.getppid(), signal.SIGSTOP); os._exit(0)"
        ended = supervisor.run(Job("misbehaving", "obey", {"code": code}, reports=True), JobLimits())
        assert ended.failure is not None
        assert ended.failure.text == "the process that trials are forked from was lost under it 2 times: it is stopped"
        assert supervisor.run(ANSWER, JobLimits()).verdict == "result"
