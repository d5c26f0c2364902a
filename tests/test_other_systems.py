"""Bundles are used on macOS and Windows, as far as that can be tried on Linux, and tuning says what it needs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.pretrained import shared
from tests.runtime.bundles import trainable_bundle
from tools.portable import EXITS, NETWORK, TAIL, TOLERANCE, difference, made, main
from tuner.bundle.format import CONFORMANCE
from tuner.task.builtin import digits
from tuner_conformance.files import TENSORS

ROOT = Path(__file__).parent.parent
OLD = ROOT / "tests" / "fixtures"


def ran(system: str, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module with what a system lacks taken away; text without a named encoding is an error."""
    command = [sys.executable, "-X", "warn_default_encoding", ROOT / "tests" / "other_system.py", system, *arguments]
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, cwd=folder)


def made_here() -> Path:
    """Return the folder of bundles with what this system answers."""
    return shared("portable", write_here) / "made"


def write_here(folder: Path) -> None:
    network = folder / NETWORK
    network.mkdir()
    with np.load(OLD / "inputs" / "digits-to-learn.npz") as file:
        bundles = {
            TAIL: OLD / "digits" / "bundle",
            EXITS: OLD / "exits" / "bundle",
            NETWORK: trainable_bundle(digits(), network, 0),
        }
        made(folder / "made", bundles, file["x"][::2], list(file["y"][::2]))


@pytest.fixture(scope="module")
def place() -> Path:
    return made_here()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_bundles_predict_and_learn_without_what_linux_has(place: Path, system: str) -> None:
    done = ran(system, ROOT, "tools.portable", place, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert len(rows) >= 13
    assert {name: differs for name, (_, differs) in rows.items() if differs > TOLERANCE} == {}
    rounds = json.loads((place / "expected.json").read_text())["watch, one round"]["rounds"]
    assert len(rounds) == 1


@pytest.mark.slow
def test_a_device_that_computes_something_else_is_noticed(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(place, tmp_path / "made")
    file = folder / TAIL / CONFORMANCE / TENSORS
    tensors = load_file(file)
    tensors["expected.losses"] = tensors["expected.losses"] * 1.01
    save_file(tensors, file)
    assert main([str(folder)]) == 1
    differs = {line[:24].strip(): line.split()[-2] for line in capsys.readouterr().out.splitlines()}
    assert [name for name, value in differs.items() if value == "inf"] == ["bundle check"]


@pytest.mark.parametrize(("system", "command"), [("darwin", "run"), ("win32", "describe")])
def test_what_needs_linux_says_so_in_one_line(system: str, command: str, tmp_path: Path) -> None:
    done = ran(system, tmp_path, "tuner", command, "digits")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tuner: tuning, and whatever else opens a task's model, needs Linux")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("value", "differs"),
    [
        ({"a": [0.5, "x"]}, 0.0),
        ({"a": [0.4, "x"]}, 0.1),
        ({"a": [0.5, "y"]}, np.inf),
        ({"a": [0.5]}, np.inf),
        ({"a": [np.nan, "x"]}, np.inf),
        ([], np.inf),
    ],
)
def test_answers_differ_by_their_numbers_or_altogether(value: Any, differs: float) -> None:
    assert difference(value, {"a": [0.5, "x"]}) == pytest.approx(differs)


def test_the_recipes_of_the_other_systems_name_what_there_is() -> None:
    yaml = pytest.importorskip("yaml")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            commands += [step["run"] for step in job["steps"] if "run" in step]
    for command in commands:
        for target in re.findall(r"^make ([a-z-]+)", command):
            assert target in targets
        for module in re.findall(r"-m (tools\.\w+)", command):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
    assert len(commands) >= 5
