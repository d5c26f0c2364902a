"""Limits of commands, and code of tasks and plugins that does not end: one line, and in time."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.errors import LIMIT

pytestmark = pytest.mark.slow

LATE = 60.0  # a busy machine takes its time; what never ends takes an hour
TASKS = """
import os, time
from dataclasses import replace
import numpy as np
from tuner.task import Subset, digits

def hang():
    time.sleep(3600)

def leave():
    raise SystemExit(0)

def vanish():
    os._exit(0)

def forked():
    os.fork()
    return digits()

def ended():
    os.kill(os.getpid(), 15)

class Mistaken(Subset):
    def load(self, index):
        if index == 3:
            raise Wrong("row \\x1b[2J")
        return super().load(index)

    def sample_id(self, index):
        return str(self.load(index).sum())

class Wrong(BaseException):
    pass

def mistaken():
    made = digits()
    train = Mistaken(made.local.train, np.arange(len(made.local.train)))
    return replace(made, local=replace(made.local, train=train))
"""


def tuner(*arguments: object) -> tuple[int, list[str], float]:
    """Run a command; return its exit code, its lines on stderr, and the seconds that it took."""
    started = time.monotonic()
    command = [sys.executable, "-m", "tuner", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LATE, check=False)
    return ended.returncode, ended.stderr.splitlines(), time.monotonic() - started


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tasks.py"
    path.write_text(TASKS)
    return path


def test_a_task_that_does_not_load_costs_its_time_and_no_more(tasks: Path, tmp_path: Path) -> None:
    code, lines, seconds = tuner("run", f"{tasks}:hang", "--time", "4s", "--out", tmp_path / "run")
    *phases, line = lines
    assert code == LIMIT
    assert all(one.startswith("opening the task") for one in phases)
    assert line.startswith("tuner: ")
    assert "--time" in line  # allows less than loading the task takes; or, on a busy machine, what comes before
    assert seconds < LATE
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("function", "said"),
    [("leave", "tasks.py:11 raised SystemExit: 0"), ("vanish", "ended with exit code 0 before its first job")],
)
def test_a_task_that_ends_its_process_is_a_mistake(tasks: Path, function: str, said: str) -> None:
    code, lines, _ = tuner("describe", f"{tasks}:{function}")
    assert code == 1
    (line,) = lines
    assert line.startswith("tuner: ")
    assert said in line


def test_a_mistake_in_load_is_one_line_with_its_place_and_sample(tasks: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    code, lines, _ = tuner("describe", f"{tasks}:mistaken")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"tuner: {tasks}:26 raised Wrong: row \\x1b[2J for sample 3")


def test_a_task_that_forks_and_comes_back_twice_is_opened_once(tasks: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    code, lines, _ = tuner("describe", f"{tasks}:forked")
    assert (code, lines) == (0, [])


def test_sigterm_ends_what_only_predicts_as_ctrl_c_does(tmp_path: Path) -> None:
    script = GUARDED.partition("if sys.argv")[0] + "import os\nfrom tuner.commands.limits import NO_LIMITS\n"
    script += "with guarded('predicting', NO_LIMITS):\n    os.kill(os.getpid(), 15)\n    time.sleep(3600)\n"
    code, error = run_script(tmp_path / "ended.py", script)
    assert code == -signal.SIGINT
    assert error.splitlines()[-1] == "KeyboardInterrupt"


#: Commands that run a bundle's graph or plan, of a bundle and a file.
LIMITED = (
    "predict {0} {1}",
    "watch {0} --samples {1} --once",
    "bundle conformance {0}",
    "labels remove {0} 9 --out {2}",
)
STARVED = """
import shlex, sys
from tuner.commands import limits
limits.available_memory = lambda: -10**9
from tuner.cli.app import call
raise SystemExit(call(shlex.split(sys.argv[1])))
"""


def test_every_command_that_runs_a_bundle_leaves_memory_to_others(tmp_path: Path) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures"
    bundle = shutil.copytree(fixtures / "digits" / "bundle", tmp_path / "bundle")
    for command in LIMITED:
        words = command.format(bundle, fixtures / "inputs", tmp_path / "out")
        code, error = run_script(tmp_path / "starved.py", STARVED, words)
        assert code == LIMIT, (command, error)
        assert "most of what is free" in error.splitlines()[-1]


def test_a_signal_that_meets_the_process_that_opens_the_task_alone_is_named(tasks: Path) -> None:
    code, lines, _ = tuner("describe", f"{tasks}:ended")
    assert code == 1
    assert "the process that opens the task was ended by SIGTERM" in lines[-1]


def run_script(script: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Run a script; return its exit code and what it wrote on stderr."""
    script.write_text(text)
    ended = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=LATE, check=False
    )
    return ended.returncode, ended.stderr


FENCED = """
import ctypes, time
from tuner.cli.fence import ended_after
with ended_after(0.1, time.monotonic()):
    {}
time.sleep(1.2)
"""


def test_a_command_that_holds_the_lock_is_ended_and_says_where(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    held = "ctypes.PyDLL(None).sleep(3600)"  # C code that holds Python's lock: no signal is handled in it
    code, error = run_script(script, FENCED.format(held))
    said = "tuner: --time was over and the command did not answer, so it was ended in"
    kept = "(what was finished is kept: tuner show shows a run, --resume continues it)"
    assert (code, error) == (-signal.SIGKILL, f'{said} File "{script}", line 5 in <module> {kept}\n')
    code, error = run_script(script, FENCED.format("time.sleep(3600)"))
    assert (code, error) == (LIMIT, f'{said} File "{script}", line 5 in <module> {kept}\n')
    assert run_script(script, FENCED.format("pass")) == (0, "")  # what ends in time is left alone


ASLEEP = """
import time
from tuner.cli.fence import ended_after
with ended_after(3, time.monotonic()):
    print("begun", flush=True)
    time.sleep(0.5)
"""


def test_a_command_that_slept_through_its_time_is_not_ended(tmp_path: Path) -> None:
    script = tmp_path / "asleep.py"
    script.write_text(ASLEEP)
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(4.5)
        os.killpg(process.pid, signal.SIGCONT)
        assert process.communicate(timeout=LATE)[1] == ""
        assert process.returncode == 0


GUARDED = """
import sys, time
from tuner.cli.fence import guarded
from tuner.commands import limits
if sys.argv[1:] == ["-", "-"]:
    limits.available_memory = lambda: 60_000_000
from tuner.commands.limits import CommandLimits
with guarded("predicting", CommandLimits.read(*(None if one == "-" else one for one in sys.argv[1:]))):
    kept = [bytearray(1_000_000) for _ in range(100)] if sys.argv[1] == "-" else []
    time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (("-", "50MB"), "more than --memory allows"),
        (("0.3s", "-"), "longer than --time allows"),
        (("-", "-"), "most of what is free"),
    ],
)
def test_a_block_over_its_limits_is_ended_in_one_line(tmp_path: Path, limits: tuple[str, str], said: str) -> None:
    code, error = run_script(tmp_path / "work.py", GUARDED, *limits)
    assert code == LIMIT
    (line,) = error.splitlines()
    assert line.startswith("tuner: predicting took ")
    assert said in line


def test_a_plugin_that_prints_does_not_spoil_json(tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text("print('a word')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "tuner", "plugins", "--plugin", str(tmp_path / "chatty.py"), "--json"],
        capture_output=True, text=True, timeout=LATE, check=True,
    )  # fmt: skip
    assert ended.stdout.startswith("{")
    assert "a word" in ended.stderr
