"""`tuner run` with several models chooses one of them, keeps what it chose from, and does not choose again.

Two sizes of one network that cannot be told apart are searched together.
"""

import json
import re
import socket
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.cli.tiny_task import Cli
from tuner.cli.app import call
from tuner.results.run import Run
from tuner.task import ModelSpec
from tuner_choose.choosing import Choice
from tuner_choose.commands import listed
from tuner_choose.torch.sizes import sizes

MonkeyPatch = pytest.MonkeyPatch

BUILD = "net.py:build"


def never(*_: object) -> None:
    raise AssertionError("no candidate may be looked at")


@pytest.fixture
def run(tmp_path: Path, tune: Cli, task: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of one trial that chose among two sizes and a network that there is not."""
    models = [word for text in (f"{BUILD}@32", f"{BUILD}@96", "net.py:none") for word in ("--model", text)]
    with MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with MonkeyPatch.context() as killed:
            killed.setattr(Choice, "made", never)
            with pytest.raises(AssertionError):
                tune(task, *models, "--trials", "1", "--deterministic")
        assert tune(task, *models, "--trials", "1", "--deterministic", "--resume")[0] == 0
    shown = capsys.readouterr().out
    assert shown == "" or "net.py" in shown
    return tmp_path / "run"


def test_two_sizes_as_good_are_searched_and_a_broken_one_is_said_and_resuming_reads_the_choice(
    run: Path,
    task: Path,
    tune: Cli,
    cli: Cli,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: MonkeyPatch,
) -> None:
    chosen, larger = f"{BUILD}@32", f"{BUILD}@96"
    record = json.loads((run / "candidates.json").read_text())
    rows = {row["candidate"]: row for row in record["candidates"]}
    assert (record["chosen"], record["sizes"]) == (chosen, [32, 96])
    assert rows[chosen]["chosen"]
    assert rows[larger]["searched"]
    assert (rows[larger]["gain"], rows[chosen]["on_front"]) == (0.0, True)
    assert all(rows[name]["latency_seconds"] > 0 for name in (chosen, larger))
    assert (rows[larger]["costs"], rows[larger]["relative_costs"] > 5) == ("FLOPs", True)
    assert "no 'none'" in rows["net.py:none"]["reason"]
    assert Run.open(run).info.config.task == f"{task}#{chosen}"
    assert call(["show", str(run)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"→ {chosen}" in text
    assert "net.py:none was not chosen" in text
    assert f"{larger} is searched too, another size of that network that may be as good: +0.0 points" in text
    assert call(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["candidates"]["sizes"] == [32, 96]
    monkeypatch.setattr(Choice, "__init__", never)
    monkeypatch.chdir(tmp_path)
    again = ["--model", larger, "--model", chosen, "--trials", "3", "--deterministic", "--resume"]
    assert tune(task, *again)[0] == 0
    trials = {record.plan.model.side: record.trial for record in Run.open(run).records if record.plan}
    assert set(trials) == {32, 96}
    assert call(["show", str(run)]) == 0
    assert "searched, best local accuracy: at " in capsys.readouterr().out
    code, line = tune(task, "--model", larger, "--model", f"{BUILD}@48", "--trials", "2", "--resume")
    assert code
    assert f"was begun with the model {chosen}" in line
    assert call(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert f"{chosen}, chosen from 3 candidates" in (tmp_path / "report.html").read_text()
    assert call(["export", str(run), str(tmp_path / "bundle"), "--pick", str(trials[96])]) == 0
    assert json.loads((tmp_path / "bundle" / "bundle.json").read_text())["input"]["size"] == 96
    capsys.readouterr()
    watched = ("--samples", str(tmp_path / "local" / "val"), "--once", "--json")
    assert call(["watch", str(tmp_path / "bundle"), *watched]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["predicted"] == 6
    task.write_text(task.read_text().replace("factory", f'candidates = ["{chosen}", "{larger}"]\n        factory'))
    assert cli("apply", tmp_path / "bundle", task, tmp_path / "again") == (0, ANY)
    assert json.loads((tmp_path / "again" / "bundle.json").read_text())["input"]["size"] == 96


def test_one_model_costs_no_pass_and_takes_the_place_of_the_tasks(
    task: Path, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.setattr(Choice, "__init__", never)
    monkeypatch.chdir(tmp_path)
    text = task.read_text()
    task.write_text(text.replace('factory = "net.py:build"', 'candidates = ["net.py:build@32"]'))
    out, limits = tmp_path / "run", ["--space", tmp_path / "space.toml", "--trials", "1"]
    assert cli("run", task, "--out", out, *limits)[0] == 0
    assert Run.open(out).info.config.task == str(task)
    assert not (out / "candidates.json").exists()
    code, line = cli("run", "digits", "--model", "net.py:build", "--trials", "1")
    assert code
    assert "--model takes the place of the model of a task file" in line
    several = ("--model", "net.py:build@16", "--model", "net.py:build@32", "--study", "sqlite:///study.db")
    code, line = cli("run", task, *several)
    assert code
    assert "workers of a study share one model" in line
    task.write_text(text)
    assert call(["run", str(task), "--model", "net.py:build@32", "--dry-run"]) == 0
    assert "candidates" not in capsys.readouterr().out
    task.write_text(text.replace('factory = "net.py:build"', 'candidates = ["alexnet", "net.py:build@32", "net.onnx"]'))
    assert call(["run", str(task), "--time", "60m", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "candidates for the model: alexnet, net.py:build@32, net.onnx" in shown
    assert re.search(r"in at most 1[12]m ", shown)  # a fifth of what is left
    assert not (tmp_path / "runs").exists()


def test_models_are_listed_without_a_network(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "models--timm--tiny.v1" / "snapshots" / "1"
    cached.mkdir(parents=True)
    (cached / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    (cached / "model.safetensors").write_bytes(b"12345678")
    (tmp_path / "mine").mkdir()
    for name in ("resnet18-5c106cde.pth", "net.safetensors", "net.onnx", "read.txt"):
        (tmp_path / "mine" / name).write_bytes(b"1234")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("TUNER_DATA")
    monkeypatch.setattr("tuner_choose.places.installed", tuple)  # no package has weights
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", never)
    monkeypatch.setattr(socket, "getaddrinfo", never)
    found = {Path(one.file).name: one for one in listed(task, tmp_path / "mine", 0)}
    assert {name: one.candidate for name, one in found.items()} == {
        "resnet18-5c106cde.pth": f"torchvision.models:resnet18={tmp_path / 'mine' / 'resnet18-5c106cde.pth'}",
        "net.safetensors": "",
        "net.onnx": str(tmp_path / "mine" / "net.onnx"),
        "1": "timm:tiny.v1",
    }
    assert found["1"].licence == "apache-2.0"
    assert call(["models", str(task), "--model-folder", "mine", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert all(row["note"] for row in rows)  # none of these can be opened, which is said


def test_a_network_computes_more_of_a_larger_picture(task: Path) -> None:
    small, large = (sizes(ModelSpec(f"{task.parent / 'net.py'}:build"), side) for side in (32, 64))
    assert small[0] == large[0] > 0
    assert large[1] > small[1] > 0
