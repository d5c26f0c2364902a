"""Commands and readers of task files that plugins add."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.installed import install
from tuner.cli.app import app, call
from tuner.errors import TaskError
from tuner.plugin.core import build_host, load_task

GUEST = """
from cyclopts import App
from tuner.plugin import TaskReader, hookimpl
from tuner.task import digits

greet = App(name="greet", help="Greet.")

@greet.default
def greeted():
    print("good morning")

class Reader(TaskReader):
    noun = "a greeting .hi"

    def read(self, path, *, look=True, defaults_of=None):
        return digits()

def choose(*, mood: str = "", json_output: int = 0):
    print(f"a {mood} morning, {json_output}")

@hookimpl
def tuner_task_files():
    return {".hi": Reader()}
"""


@pytest.fixture(autouse=True)
def _app_as_it_was() -> Iterator[None]:
    """Take the commands that plugins added out of the app, which all tests share."""
    yield
    for name in {"greet", "hello", "show"} & {*app}:
        del app[name]
    if "plugins" in app and "salute" in app["plugins"]:
        del app["plugins"]["salute"]


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.delitem(sys.modules, "guest", raising=False)
    install(folder, "guest", source)
    with (folder / "guest-1.2.dist-info" / "entry_points.txt").open("a") as points:
        points.write("[tuner.commands]\ngreet = guest:greet\nhello = guest:greet\nplugins salute = guest:greet\n")
        points.write("[tuner.options]\nshow mood = guest:choose\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_plugin_adds_a_command_and_a_kind_of_task_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, GUEST)
    assert call(["greet"]) == 0
    assert capsys.readouterr().out == "good morning\n"
    (tmp_path / "task.hi").write_text("hi")
    assert load_task(str(tmp_path / "task.hi")).name == "digits"
    assert call(["greet", "--loudly"]) == 2
    assert call(["show", str(tmp_path)]) == 1  # the core's own commands go on
    capsys.readouterr()
    assert call(["plugins", "salute"]) == 0  # a command in a group of the core
    assert capsys.readouterr().out == "good morning\n"


def test_a_plugin_adds_an_option_to_a_command_and_takes_none_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, GUEST)
    asked = ["show", str(tmp_path), "--json"]
    assert call(asked) == 1
    assert "morning" not in capsys.readouterr().out
    assert call([*asked, "--mood", "grey"]) == 1  # there is no run
    assert capsys.readouterr().out == "a grey morning, 0\n"
    assert call(["plugins", "--mood", "grey"]) == 2, "it is of another command"
    monkeypatch.setenv("TUNER_PLUGINS", "-guest")
    assert call(["run", "--mood", "grey"]) == 2


def test_what_a_plugin_that_is_switched_off_adds_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, GUEST)
    monkeypatch.setenv("TUNER_PLUGINS", "-guest")
    assert call(["hello"]) == 2
    assert "hello is a command of the plugin guest, which is switched off: change TUNER_PL" in capsys.readouterr().err
    assert call(["plugins", "salute"]) == 2
    assert "plugins salute is a command of the plugin guest, which is switched off" in capsys.readouterr().err
    assert call(["hallo"]) == 2
    assert "Unknown command" in capsys.readouterr().err
    (tmp_path / "task.hi").write_text("hi")
    with pytest.raises(
        TaskError, match=r"got '\.hi': if a plugin reads such files, install it, or take it out of TUNER_PL"
    ):
        load_task(str(tmp_path / "task.hi"))


def test_a_command_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "import nowhere_at_all\n")
    assert call(["hello"]) == 1
    assert "the command 'hello' of a plugin cannot be imported (ModuleNotFoundError" in capsys.readouterr().err


def test_a_reader_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path / "site", monkeypatch, GUEST.replace("Reader()", "Reader"))
    refused = {plugin.name: plugin.refused for plugin in build_host().refused}
    assert "readers of task files by name" in refused["guest"]
    assert ".hi" not in build_host().task_files


def test_without_its_plugin_a_model_file_is_named_as_what_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_PLUGINS", "-nntrainer")
    with pytest.raises(Exception, match=r"a task must be a \.toml file or file\.py:function, got '\.ini'"):
        load_task("examples/nntrainer/lenet5.ini")
