"""A run that is cut short, by whatever, continues: no finished trial is lost, none is repeated."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.pretrained import with_weights
from tuner.backends.base import CHECKPOINT
from tuner.results.folder import TRIALS as TRIALS_FILE

pytestmark = pytest.mark.slow
TRIALS = 3
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[knobs]
cache.augment = 0.0
freeze.trainable_blocks = [1, 2, 3]
cache.by = "cache"
runtime.threads = 1  # threads that wait for each other are slow on a busy machine
[knobs.recipe]
epochs = { low = 10, high = 15 }
batch_size = 32
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a space of longer trials, and a cache that the runs share."""
    folder = tmp_path_factory.mktemp("resume")
    (folder / "space.toml").write_text(SPACE)
    return folder


def start(home: Path, out: str, *arguments: str, trials: int = TRIALS) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tuner", "run", "digits", "--space", "space.toml", "--out", out, *arguments]
    return subprocess.Popen(
        [*command, "--trials", str(trials), "--json"],
        cwd=home,
        env={**os.environ, "TUNER_CACHE": str(with_weights(home / "cache"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that a signal may go to the whole group, as a terminal's does
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    shown: dict[str, Any] = json.loads(out)
    return shown


def records(run: Path) -> list[dict[str, Any]]:
    file = run / TRIALS_FILE
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def wait_for(holds: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def during_a_trial(process: subprocess.Popen[str], run: Path, finished: int = 1) -> list[psutil.Process]:
    """Wait until some trials are finished and the next one trains; return the run's processes."""

    def trains() -> bool:
        return len(family(process.pid)) == 2 and len(records(run)) >= finished

    wait_for(trains, process)
    return family(process.pid)


def family(pid: int) -> list[psutil.Process]:
    """Return the process that trials are forked from, and the trial's."""
    return psutil.Process(pid).children(recursive=True)  # type: ignore[no-any-return]  # psutil ships no types


def test_killed_during_a_trial_and_resumed_it_equals_an_undisturbed_run(home: Path) -> None:
    whole = finish(start(home, "whole", "--deterministic"))
    process = start(home, "cut", "--deterministic")
    children = during_a_trial(process, home / "cut")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = records(home / "cut")
    assert 1 <= len(before) < TRIALS
    assert psutil.wait_procs(children, timeout=60)[1] == []
    cut = finish(start(home, "cut", "--deterministic", "--resume"))
    after = records(home / "cut")
    assert after[: len(before)] == before
    assert len({record["key"] for record in after}) == len(after) == TRIALS
    assert [trial["plan"] for trial in cut["trials"]] == [trial["plan"] for trial in whole["trials"]]
    assert [trial["values"] for trial in cut["trials"]] == [trial["values"] for trial in whole["trials"]]
    assert [one["trial"] for one in cut["front"]] == [one["trial"] for one in whole["front"]]


def test_each_signal_ends_it_with_130_and_leaves_no_child_and_it_continues(home: Path) -> None:
    options = ["--time", "10m"]
    for number, is_to_all in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)):
        out = f"signalled-{number}-{is_to_all}"
        process = start(home, out, *options)
        children = during_a_trial(process, home / out)
        os.killpg(process.pid, number) if is_to_all else os.kill(process.pid, number)
        said, error = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, ""), error
        *_, interrupted, to_continue, command = error.splitlines()
        assert (interrupted, to_continue) == ("tuner: interrupted; what was finished is kept", "to continue:")
        assert command.startswith("tuner run digits ")
        assert " --resume" in command
        assert "Traceback" not in error
        assert psutil.wait_procs(children, timeout=30)[1] == []
        ended = json.loads((home / out / "run.json").read_text())["ended"]
        assert ended == "interrupted; continue with --resume"
    before = records(home / out)
    shown = finish(start(home, out, *options, "--resume"))
    assert records(home / out)[: len(before)] == before
    assert shown["counts"]["done"] == TRIALS
    assert shown["ended"] == f"{TRIALS} trials are done"


def test_a_run_in_use_is_refused_and_undisturbed(home: Path) -> None:
    first = start(home, "shared", "--time", "5m", trials=1)
    wait_for((home / "shared" / "run.json").exists, first)
    os.kill(first.pid, signal.SIGSTOP)  # so that it cannot have ended before the second looks
    try:
        second = start(home, "shared", "--time", "5m", "--resume", trials=1)
        _, error = second.communicate(timeout=120)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert second.returncode == 1
    assert "shared is in use by another `tuner run`: wait for it, or give another --out" in error.splitlines()[-1]
    assert finish(first)["counts"]["done"] == 1


GROWTH = """
strategies = ["growth"]
objectives = ["local_accuracy", "parameters"]
[knobs]
none.augment = 0.0
growth.mode = ["scratch", "tail"]
growth.start = { low = 0.1, high = 0.3 }
growth.cap = 1.0
growth.flops = 1.0
growth.controller = "ric"
growth.horizon = 3
growth.penalty = 0.1
growth.adapter = "dspa"
runtime.backend = "torch"
runtime.threads = 1
[knobs.recipe]
epochs = 9
batch_size = 4
optimiser = "adam"
learning_rate = { low = 1e-3, high = 3e-3 }
schedule = "constant"
patience = 0
micro_batches = 1
"""


def widths(shown: dict[str, Any]) -> list[list[dict[str, float]]]:
    """Return every trial's widths after each of its decisions."""
    logged = [
        [{name: value for name, value in epoch.items() if name.endswith(".width")} for epoch in trial["epochs"]]
        for trial in shown["trials"]
    ]
    return [[sizes for sizes in trial if sizes] for trial in logged]


def test_killed_while_it_grows_and_resumed_it_ends_with_the_same_widths(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(GROWTH)
    whole = finish(start(tmp_path, "whole", "--deterministic", trials=2))
    process = start(tmp_path, "cut", "--deterministic", trials=2)
    checkpoint = tmp_path / "cut" / "trials" / "0" / CHECKPOINT

    def grows() -> bool:
        return checkpoint.exists() and len(torch.load(checkpoint, weights_only=True)["epochs"]) >= 5

    wait_for(grows, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "cut" / TRIALS_FILE).exists()
    before = torch.load(checkpoint, weights_only=True)["epochs"]
    cut = finish(start(tmp_path, "cut", "--deterministic", "--resume", trials=2))
    assert [trial["plan"] for trial in cut["trials"]] == [trial["plan"] for trial in whole["trials"]]
    assert cut["trials"][0]["epochs"][: len(before)] == before  # it went on, and did not begin again
    assert widths(cut) == widths(whole)
    assert not list((tmp_path / "cut").glob(f"trials/*/{CHECKPOINT}"))
    assert all(trial[-1] != trial[0] for trial in widths(whole))
    assert len(widths(whole)) == 2
    assert [trial["values"] for trial in cut["trials"]] == [trial["values"] for trial in whole["trials"]]
