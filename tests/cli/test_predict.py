"""Predicting files and folders from the command line: each file by itself, as text, JSON or CSV."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundle.handmade import make, pointing
from tuner.cli.app import call
from tuner.errors import USAGE

__all__ = ["make", "pointing"]
Make = Callable[..., Any]


@pytest.fixture
def bundle(make: Make, pointing: Make) -> Path:
    folder: Path = make("bundle", [pointing(2.0)])
    return folder


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    folder = tmp_path / "samples"
    for number, name in enumerate(("1.npy", "deep/er/2.npy", "deep/3.npy", ".hidden/4.npy", "deep/.5.npy")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, np.eye(3, dtype=np.float32)[number % 3])
    (folder / "notes.txt").write_text("not a sample")
    os.mkfifo(folder / "pipe.npy")  # opening it would wait for a writer
    return folder


def test_a_folder_is_predicted_at_any_depth(bundle: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["predict", str(bundle), str(samples), str(samples / "1.npy")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [(line.split(": ")[0], line.split(": ")[1][0]) for line in lines] == [
        (f"{samples}/1.npy", "a"),
        (f"{samples}/deep/3.npy", "c"),
        (f"{samples}/deep/er/2.npy", "b"),
        (f"{samples}/1.npy", "a"),
    ]


def test_a_bad_file_costs_only_itself(bundle: Path, samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (samples / "0.npy").write_bytes(b"\x93NUMPY half")
    np.save(samples / "deep" / "wide.npy", np.zeros(7))
    assert call(["predict", str(bundle), str(samples), "missing.npy", "--json"]) == 1
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert [Path(one["file"]).name for one in content["predictions"]] == ["1.npy", "3.npy", "2.npy"]
    assert [Path(one["file"]).name for one in content["refused"]] == ["0.npy", "wide.npy", "missing.npy"]
    assert content["left_out"] == [{"folder": str(samples), "kinds": "1 .txt, 1 special file"}]
    lines = captured.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warning", "warning", "warning", "note", "tuner"]
    assert "takes numbers of shape [3], got float64 [7]" in lines[1]
    names = ("0.npy", "wide.npy", "missing.npy")
    assert all(name in line for name, line in zip(names, lines, strict=False))
    assert lines[-1] == "tuner: 3 files were not predicted, as the lines above say: replace or remove them"


def test_answers_come_one_by_one(bundle: Path, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    from tuner.runtime import Personaliser

    predict_file = Personaliser.predict_file

    def noted(self: Personaliser, path: Path) -> Any:
        events.append("predicts")
        return predict_file(self, path)

    monkeypatch.setattr(Personaliser, "predict_file", noted)
    monkeypatch.setattr("tuner.cli.bundles.predict.print_line", lambda _: events.append("prints"))
    assert call(["predict", str(bundle), str(samples)]) == 0
    assert events == ["predicts", "prints"] * 3


def test_csv_takes_any_name(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    names = ["=1+1.npy", 'a,"b".npy', "line\nbreak.npy", "\x1b[2J.npy", os.fsdecode(b"\xff.npy")]
    for name in names:
        np.save(folder / name, np.eye(3, dtype=np.float32)[1])
    monkeypatch.chdir(folder)
    assert call(["predict", str(bundle), *names, "--csv"]) == 0
    output = capsys.readouterr().out
    assert len(output.splitlines()) == 1 + len(names)
    rows = list(csv.DictReader(io.StringIO(output)))
    expected = ["./=1+1.npy", 'a,"b".npy', "line\\nbreak.npy", "\\x1b[2J.npy", "\\udcff.npy"]
    assert [row["file"] for row in rows] == expected
    assert {row["label"] for row in rows} == {"b"}
    assert all(0 < float(row["probability"]) <= 1 and row["exit"] == "0" for row in rows)


def test_a_folder_without_samples_and_two_formats_at_once_are_refused(
    bundle: Path, samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert call(["predict", str(bundle), str(tmp_path / "empty")]) == 1
    rule = "empty: no file of the model's kind (.csv, .npy) in it: give another folder"
    assert rule in capsys.readouterr().err
    assert call(["predict", str(bundle), str(samples), "--json", "--csv"]) == USAGE
    assert "--csv" in capsys.readouterr().err
