"""`tuner plugins search`: installed plugins, the cookbook's methods and given indexes, without a network."""

import json
import socket
from pathlib import Path

import pytest

from benchmarks.methods.__main__ import SECONDS, TABLE, TASKS, cells_of
from benchmarks.methods.gallery import INDEX, index
from benchmarks.methods.methods import METHODS
from tests.schemas import check, validator
from tuner.errors import PluginError
from tuner_gallery.commands import search as command
from tuner_gallery.index import cookbook, read_index
from tuner_gallery.search import search

ENTRY = '{"name": "tuner-mine", "adds": ["strategy mine"], "license": "MIT", "install": "pip install tuner-mine"}'
TOML = """schema = "plugins-index-1"
[[plugins]]
name = "freeze"
summary = "Another one"
[[plugins.measured]]
task = "digits"
local_accuracy = 0.9
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return written(tmp_path / "mine.json", f'{{"schema": "plugins-index-1", "plugins": [{ENTRY}]}}')


def test_a_plugin_is_found_by_its_words_and_says_what_was_measured(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "socket", None)  # nothing is fetched
    command("MINE", index=(mine,))
    assert capsys.readouterr().out.splitlines() == [
        f"tuner-mine (not installed, from {mine})",
        "  strategy mine",
        "  pip install tuner-mine",
        "  MIT",
    ]
    command("freeze", index=(written(tmp_path / "a.toml", TOML),))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "freeze (device-tuner 0.1.0)"
    assert rest[:3] == [
        "  Freezing: only the last blocks train.",
        "  strategy freeze",
        "  local / global accuracy (against fine-tuning): digits 90.0 % (1 seed)",
    ]
    command("slda", json_output=True)
    found = json.loads(capsys.readouterr().out)
    check(found)
    (slda,) = found["plugins"]
    photos, others = {"sign", "objects", "clothing", "cifar"}, {"digits", "esc10", "spoken", "emg"}
    assert {row["task"] for row in slda["measured"]} == {*photos, *others, "new-digits", "new-person"}
    assert (slda["installed"], slda["index"]) == ("", "cookbook.json")
    command("nothing", "like", "it")
    assert "no plugin matches 'nothing' and 'like' and 'it': try other words" in capsys.readouterr().out


def test_without_words_all_are_found(mine: Path) -> None:
    names = {found.entry.name for found in search((), [mine])}
    assert {"tuner-mine", "freeze", "slda", "lora"} <= names
    assert len(names) == len(search((), [mine])) > 60


def test_the_cookbooks_index_is_what_the_table_holds() -> None:
    text = INDEX.read_text(encoding="utf-8")
    assert text == index(cells_of(TABLE, METHODS, SECONDS), list(TASKS)), "python -m benchmarks.methods --page"
    validator("plugins-index-1").validate(json.loads(text))
    assert {entry.name for entry in cookbook().plugins if not entry.measured} == set()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none.json", "", r"not valid JSON \(Expecting value"),
        ("a.toml", "schema = ", r"not valid TOML \("),
        ("a.json", "[]", "schema must be 'plugins-index-1', got None: see tuner plugins search"),
        ("a.json", '{"schema": "plugins-index-2"}', "got 'plugins-index-2': .* or update tuner"),
        ("a.json", '{"schema": "plugins-index-1"}', "plugins: Field required"),
        ("a.json", TOML.replace("task", "tasks"), "not valid JSON"),
        ("a.toml", TOML.replace("task", "tasks"), r"plugins.0.measured.0.task: Field required|tasks: Unexpected"),
        ("a.toml", TOML.replace("0.9", "90"), r"measured.0.local_accuracy: Input should be less than .* got 90"),
        ("a.toml", TOML.replace('"freeze"', '""'), "plugins.0.name: String should have at least 1 character, got ''"),
    ],
)
def test_an_index_that_cannot_be_read_is_an_error(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=message):
        read_index(written(tmp_path / name, text))
    with pytest.raises(PluginError, match=r"https:/.*cannot be read \(No such file"):
        read_index(Path("https://example.org/index.json"))
