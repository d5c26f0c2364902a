"""A run that is killed while a tail grows continues to the widths that an undisturbed run ends with."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.test_resume import finish, start
from tuner.backends.base import CHECKPOINT
from tuner.results.folder import TRIALS

pytestmark = pytest.mark.slow
SPACE = """
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


def grows(process: subprocess.Popen[str], run: Path) -> bool:
    """Return whether the first trial is some epochs beyond its first growths."""
    assert process.poll() is None, process.communicate()
    file = run / "trials" / "0" / CHECKPOINT
    return file.exists() and len(torch.load(file, weights_only=True)["epochs"]) >= 5


def test_killed_while_it_grows_and_resumed_it_ends_with_the_same_widths(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    whole = finish(start(tmp_path, "whole", "--deterministic", trials=2))
    process = start(tmp_path, "cut", "--deterministic", trials=2)
    end = time.monotonic() + 400
    while not grows(process, tmp_path / "cut"):
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "cut" / TRIALS).exists()
    before = torch.load(tmp_path / "cut" / "trials" / "0" / CHECKPOINT, weights_only=True)["epochs"]
    cut = finish(start(tmp_path, "cut", "--deterministic", "--resume", trials=2))
    assert [trial["plan"] for trial in cut["trials"]] == [trial["plan"] for trial in whole["trials"]]
    assert cut["trials"][0]["epochs"][: len(before)] == before  # it went on, and did not begin again
    assert widths(cut) == widths(whole)
    assert not list((tmp_path / "cut").glob(f"trials/*/{CHECKPOINT}"))
    assert all(trial[-1] != trial[0] for trial in widths(whole))
    assert len(widths(whole)) == 2
    assert [trial["values"] for trial in cut["trials"]] == [trial["values"] for trial in whole["trials"]]
