"""Kinds of samples that plugins add, found without loading any other plugin."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.plugin.installed import install
from tests.task.conftest import Load
from tuner.cli.app import call
from tuner.errors import TaskError
from tuner.task import inputs
from tuner.task.inputs import input_kind, kind_names

ROWS = """
import csv

import numpy as np

from tuner.task import Entry, InputKind, ArraySamples

class Rows(InputKind):
    name = "rows"
    suffixes = frozenset({".csv"})
    noun = "rows"
    windowed = True

    def entry(self, source):
        with source.path.open() as file:
            cells = list(csv.reader(file))
        values = np.array([row[:-1] for row in cells], np.float32)
        names, targets = source.targets.read_texts([(row[-1],) for row in cells], source.path)
        return Entry(str(source.path), names, targets, lambda rows: ArraySamples(values, rows, source.spec, "rows"))

    def read(self, path, spec):
        return np.loadtxt(path, np.float32, delimiter=",", ndmin=2)

    def pieces(self, content, spec, name):
        return range(len(content)), content

ROWS = Rows()
"""


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str = ROWS) -> None:
    monkeypatch.delitem(sys.modules, "guest", raising=False)
    inputs._offered_kind.cache_clear()
    install(folder, "guest", source)
    with (folder / "guest-1.2.dist-info" / "entry_points.txt").open("a") as points:
        points.write("[tuner.input_kinds]\nrows = guest:ROWS\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_plugin_adds_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch)
    for name, shift in (("train", 0), ("val", 5)):
        rows = (f"{row + shift},{row % 3},{'ab'[row % 2]}" for row in range(8))
        (tmp_path / f"{name}.csv").write_text("\n".join(rows))
    base = {"model.factory": "m:f", "local.kind": "rows", "local.train": "train.csv", "local.val": "val.csv"}
    task = load(None, base)
    assert task.labels == ("a", "b")
    assert task.local.train.load(3).tolist() == [3, 0]
    with pytest.raises(TaskError, match=r"input\.window = 3 does not apply to kind 'rows'"):
        load({"input.window": 3}, base)
    assert call(["plugins"]) == 0
    assert "images, rows, signals" in capsys.readouterr().out


def test_a_kind_of_a_plugin_that_is_switched_off_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Load
) -> None:
    installed(tmp_path / "site", monkeypatch)
    assert input_kind("rows").windowed
    monkeypatch.setenv("TUNER_PLUGINS", "-guest,-audio,-text")
    assert kind_names() == ["arrays", "images", "signals"]
    message = r"task\.toml: kind must be one of arrays, images, signals, got 'audio': install .* out of TUNER_PLUGINS"
    with pytest.raises(TaskError, match=message):
        load({"local.kind": "audio"})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", r"the kind 'rows' of a plugin cannot be imported \(ModuleNotFoundError: .*update it"),
        ("ROWS = 1", "the entry point 'rows' of tuner.input_kinds must be an InputKind of this name, got 1"),
    ],
)
def test_a_kind_that_cannot_be_used_is_named(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", monkeypatch, source)
    with pytest.raises(TaskError, match=message):
        input_kind("rows")


def test_random_changes_of_a_new_kind_are_those_of_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "site", monkeypatch)
    rows = np.ones((2, 3), np.float32)
    assert input_kind("rows").augment(rows, np.random.default_rng(0), frozenset({"flip"}), 1.0) is rows
