"""Workers that Ray starts: what each is started with, what it says, and its end."""

import _thread
import platform
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.app import add_commands, app
from tuner.errors import RunError
from tuner_fleet.process import Part, Worker, work
from tuner_fleet.ray import main, part_of, places_in

URL = "postgresql://me:s3cret@host/db"
#: Stands for the command `tuner`: says what it was asked, and what to do next, which nobody is to see.
PROGRAM = """
import os, signal, sys, time
print("trial 0 done", file=sys.stderr, flush=True)
print("next: tuner show one", file=sys.stderr, flush=True)
print(os.environ["TUNER_RUN_STUDY"], *sys.argv[1:], file=sys.stderr, flush=True)
def end(*_):
    print("put back", file=sys.stderr, flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
"""


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in the place of Python, which is to run `tuner`; return the folder that it is started in."""
    file = tmp_path / "program"
    file.write_text(f"#!{sys.executable}\n{PROGRAM}{request.param}\n")
    file.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(file))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ([], 2, "workers need a study that they share: give --study, such as postgresql://host/db"),
        (["--study", URL, "--trails", "3"], 2, "Unknown option: --trails"),
        (["--study", URL, "--dry-run"], 2, "--dry-run starts no workers: ask `tuner run TASK --dry-run`"),
        (["--study", URL, "--deterministic"], 2, "--deterministic runs have one worker, and --study several"),
        (["--study", "host/db"], 2, "--study must begin with postgresql://"),
        (["--study", URL, "--cores", "0"], 2, "argument --cores: must be a whole number above 0, got '0': python -m "),
        (["--study", URL, "--workers", "two"], 2, "argument --workers: must be a whole number above 0, got 'two': "),
        (["--study", URL, "--trials", "3"], 1, "this needs ray, which is not installed: pip install "),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    arguments: list[str], code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["digits", "--workers", "2", *arguments]) == code
    printed = capsys.readouterr()
    assert f"tuner: {line}" in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_each_worker_is_a_run_with_the_same_options_and_its_own_folder() -> None:
    asked = ["digits", "--space", "smoke", "--trials", "3"]
    store = {"AWS_ENDPOINT_URL_S3": "https://host:9000", "AWS_DEFAULT_REGION": "eu-north-1"}
    keys = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_PROFILE": "mine"}
    environment = {"TUNER_RUN_MEMORY": "1G", "HOME": "/root", **store, **keys}
    one, other = (part_of(Worker(number, f"/runs/{number}"), asked, URL, environment) for number in (1, 2))
    assert one.arguments == ("run", *asked, "--out", "/runs/1")
    assert other.arguments == ("run", *asked, "--out", "/runs/2")
    assert one.environment == {"TUNER_RUN_MEMORY": "1G", "TUNER_RUN_STUDY": URL, **store}
    assert "s3cret" not in repr(one)
    assert one.folder == str(Path.cwd())


@pytest.mark.parametrize(
    ("name", "value", "option"),
    [("MEMORY", "1G", "memory"), ("SPACE", "smoke", "space"), ("TRIALS", "3", "trials"), ("PRIOR", "p.toml", "prior")],
)
def test_a_worker_is_given_the_variables_that_tuner_run_reads(
    name: str, value: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = part_of(Worker(1, "/runs/1"), [], URL, {f"TUNER_RUN_{name}": value, "TUNER_CACHE": "/mine"}).environment
    assert given == {f"TUNER_RUN_{name}": value, "TUNER_RUN_STUDY": URL}
    for variable, content in given.items():
        monkeypatch.setenv(variable, content)
    add_commands()
    _, bound, _ = app.parse_args(["run", "digits"], exit_on_error=False, print_error=False)
    assert bound.arguments["request"].study == URL
    assert str(getattr(bound.arguments["request"], option)) == value


def node(cores: float, *, is_alive: bool = True) -> dict[str, Any]:
    """Return a device as `ray.nodes` lists it."""
    return {"NodeID": "a1", "Alive": is_alive, "Resources": {"CPU": cores, "memory": 1e9} if cores else {"memory": 1e9}}


@pytest.mark.parametrize(
    ("nodes", "free", "cores", "places"),
    [
        ([node(4.0)], 4.0, 1, 4),
        ([node(4.0)], 3.0, 2, 1),
        ([node(4.0)], 0.0, 1, 0),
        ([node(3.0), node(3.0)], 6.0, 2, 2),
        ([node(8.0), node(2.0), node(0.0)], 10.0, 4, 2),
        ([node(4.0), node(4.0, is_alive=False)], 4.0, 2, 2),
    ],
)
def test_workers_begin_where_there_are_free_cores_and_the_others_wait(
    nodes: list[dict[str, Any]], free: float, cores: int, places: int
) -> None:
    assert places_in(nodes, {"CPU": free} if free else {}, cores) == places  # Ray leaves out what is zero


@pytest.mark.parametrize(
    ("nodes", "largest"), [([node(2.0), node(2.0)], 2), ([node(0.0)], 0), ([node(8.0, is_alive=False)], 0), ([], 0)]
)
def test_more_cores_than_any_device_has_are_refused_before_anything_waits(
    nodes: list[dict[str, Any]], largest: int
) -> None:
    with pytest.raises(RunError, match=f"--cores 4: the largest device of the cluster has {largest}: give fewer"):
        places_in(nodes, {"CPU": 4.0}, 4)


@pytest.mark.parametrize(
    ("program", "ended"),
    [
        ("", (0, f"{URL} -P -m tuner run")),
        ("sys.exit(3)", (3, f"{URL} -P -m tuner run")),
        ("os.kill(os.getpid(), signal.SIGKILL)", (-signal.SIGKILL, "ended by SIGKILL; what was finished is kept")),
    ],
    indirect=["program"],
)
def test_what_a_worker_says_is_passed_on_and_its_end_noted(
    program: Path, ended: tuple[int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = work(Part(("run",), str(program), {"TUNER_RUN_STUDY": URL}))
    assert (found.exit_code, found.last) == ended
    assert found.device == platform.node()
    assert capsys.readouterr().err == f"trial 0 done\n{URL} -P -m tuner run\n"


@pytest.mark.parametrize("program", ["open('begun', 'w').close(); time.sleep(60)"], indirect=True)
def test_a_worker_that_ray_cancels_is_ended_as_by_ctrl_c(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def cancel() -> None:
        while not (program / "begun").exists():
            time.sleep(0.01)
        _thread.interrupt_main()  # as Ray does

    threading.Thread(target=cancel, daemon=True).start()
    found = work(Part(("run",), str(program), {"TUNER_RUN_STUDY": URL}))
    assert (found.exit_code, found.last) == (None, "interrupted; what was finished is kept")
    assert capsys.readouterr().err.endswith("\nput back\n")


def test_a_folder_that_a_device_does_not_have_is_said_so(tmp_path: Path) -> None:
    found = work(Part((), str(tmp_path / "none")))
    assert found.exit_code == 1
    assert found.last.endswith(": start from a folder that every device has")
