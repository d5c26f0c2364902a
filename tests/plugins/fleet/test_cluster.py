"""Workers that a real Ray starts; skipped without it, as it is not in the extra `test`: pip install ".[ray]"."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tuner_fleet.address import read_address
from tuner_fleet.storage.opening import opened
from tuner_fleet.study.reader import Reader

pytestmark = pytest.mark.slow
URL = "postgresql://me:s3cret@host/db"
#: Seconds after which what hangs is killed.
MOST_SECONDS = 600.0
#: Two devices of one core, until the input ends.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster()
for _ in range(2):
    cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def started(*arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start workers by Ray."""
    return subprocess.Popen(
        [sys.executable, "-m", "tuner_fleet.ray", *arguments],
        env={**os.environ, "RAY_ADDRESS": "local", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Start workers, and return the exit code and what was printed at their end."""
    with started(*arguments, **variables) as process:
        out, errors = ended(process)
    return process.returncode, out, errors


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return what a process printed until its end; if it takes too long, it is killed with all that it started."""
    try:
        return process.communicate(timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


@contextmanager
def killed_later(process: "subprocess.Popen[str]") -> Iterator[None]:
    """Kill a process, with all that it started, if the block takes too long: reading its output has no limit itself."""
    limit = threading.Timer(MOST_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Give the address of a cluster of two devices of one core each."""
    command = [sys.executable, "-c", CLUSTER]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        with killed_later(process):
            address = process.stdout.readline().strip()
        assert address
        yield address
        ended(process)


def test_ray_starts_workers_and_hears_what_they_say(tmp_path: Path) -> None:
    code, out, errors = said("no-task", "--workers", "2", "--out", str(tmp_path), "--json", TUNER_RUN_STUDY=URL)
    assert code == 1, errors
    content = json.loads(out)
    assert content["study"] == URL.replace("s3cret", "***")
    assert [one["folder"] for one in content["workers"]] == [str(tmp_path / name) for name in "12"]
    assert [one["exit_code"] for one in content["workers"]] == [1, 1]
    for worker in content["workers"]:
        assert worker["device"] == platform.node()
        assert worker["last"].startswith("tuner: ")
        assert "no-task" in worker["last"]
        assert re.search(rf"\(worker {worker['worker']} .*\) {re.escape(worker['last'])}", errors)
    assert "s3cret" not in out + errors


def test_no_worker_waits_for_more_cores_than_any_device_has(cluster: str, tmp_path: Path) -> None:
    asked = "digits", "--workers", "2", "--study", URL, "--out", str(tmp_path), "--cores", "2"
    code, out, errors = said(*asked, RAY_ADDRESS=cluster)
    assert (code, out) == (1, "")
    lines = [line for line in errors.splitlines() if "warning" not in line]
    assert lines == ["tuner: --cores 2: the largest device of the cluster has 1: give fewer by --cores"]


def test_all_devices_have_the_variables_and_who_finds_no_free_core_waits(cluster: str, tmp_path: Path) -> None:
    variables = {"RAY_ADDRESS": cluster, "TUNER_RUN_STUDY": URL, "TUNER_RUN_SPACE": "nowhere.toml"}
    code, out, errors = said("digits", "--workers", "3", "--out", str(tmp_path), **variables)
    assert code == 1, errors
    assert "1 of 3 workers wait for free cores" in errors
    assert [line.count("there is no search space 'nowhere.toml'") for line in out.splitlines()] == [1, 1, 1]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_workers_that_are_ended_put_their_trials_back_and_continue_later(tmp_path: Path, end: signal.Signals) -> None:
    study = f"sqlite:///{tmp_path / 'study.db'}"
    asked = "digits", "--workers", "2", "--study", study, "--space", "smoke", "--out", str(tmp_path / "runs")
    with started(*asked, "--trials", "500") as process:
        assert process.stderr is not None
        lines = []
        with killed_later(process):
            for line in process.stderr:
                lines.append(line)
                if ") trial " in line:
                    break
        assert ") trial " in lines[-1], lines
        process.send_signal(end)
        out, errors = ended(process)
    assert process.returncode == 130
    assert out.count("interrupted; what was finished is kept") == 2
    assert errors.endswith("to continue: the same command with --resume\n")
    states = [each.state for each in optuna.load_study(study_name="tuner", storage=study).get_trials()]
    assert TrialState.RUNNING not in states
    done = sum(state in (TrialState.COMPLETE, TrialState.PRUNED) for state in states)
    code, out, errors = said(*asked, "--resume", "--trials", str(done + 2))
    assert code == 0, errors
    assert out.count(f"ended: {done + 2} trials are done") == 2
    with opened(read_address(study)) as storage:
        assert Reader(read_address(study), storage).finished() > done
