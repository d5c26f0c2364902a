"""The command line: exit codes, what is printed where, and what is not loaded."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.printed import printed_json
from tuner import errors
from tuner.__main__ import INTERRUPTED
from tuner.cli.app import call
from tuner.errors import TunerError
from tuner.search.space import shipped

pytestmark = pytest.mark.usefixtures("cache")


def test_the_table_of_exit_codes_is_complete() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    told = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    raised = {one.exit_code for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TunerError)}
    assert told == sorted({errors.DONE, *raised, errors.INTERRUPTED}) == [0, 1, 2, 3, 4, 130]
    assert INTERRUPTED == errors.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["init"], "data"),
        (["run", "digits", "--tme", "5m"], "--tme"),
        (["run", "digits", "--trials", "many"], "trials"),
        (["rnu", "digits"], 'Did you mean "run"?'),
        (["store", "lst"], 'Did you mean "list"?'),
        (["export", "a", "b", "--pik", "knee"], "Did you mean --pick?"),
        (["predict"], "bundle"),
    ],
)
def test_wrong_usage_exits_2_with_one_line(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("tuner: ")
    assert part.lower() in line.lower()
    assert line.endswith("See tuner --help.")


@pytest.mark.parametrize("error", [NotImplementedError("a bug"), RecursionError(), KeyError("a")])
def test_a_bug_keeps_its_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise error

    monkeypatch.setattr("tuner.cli.app.add_commands", broken)
    with pytest.raises(type(error)):
        call(["show"])


def test_help_and_version_exit_0_and_the_search_spaces_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["store", "--help"], ["--version"], ["run", "--help"]):
        assert call(arguments) == 0
        text = capsys.readouterr().out
        assert text
    assert [name for name in shipped() if name not in text] == []


def test_plugins_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    listing = printed_json(capsys, "plugins")
    assert list(listing)[1:] == ["plugins", "strategies", "backends", "objectives", "tasks", "input_kinds", "problems"]
    names = {strategy["name"] for strategy in listing["strategies"]}
    assert {"recipe", "runtime", "gdm", "freeze", "cache"} <= names
    assert "torch" in listing["backends"]


def test_a_store_is_listed_and_cleared_and_keeps_nothing_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--store", tmp_path / "store")
    listed = {"schema": "store-1", "files": [], "int8": {"files": 0, "bytes": 0}}
    assert printed_json(capsys, "store", "list", *store) == listed
    assert printed_json(capsys, "store", "clear", *store)["freed_bytes"] == 0
    assert call(["store", "list", "--store", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out == "the store is empty\n"
    for name in ("kinds", "scales", "starts"):
        (tmp_path / "store" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / name / "file").write_bytes(b"12345")
    (tmp_path / "store" / "letter.txt").touch()
    assert printed_json(capsys, "store", "clear", *store)["freed_bytes"] == 15
    remaining = {path.name for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert remaining - {"lock", "users"} == {"letter.txt"}


def test_only_stdout_may_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("tuner.cli.options.print", broken, raising=False)
    assert call(["plugins"]) == 0
    monkeypatch.setattr("tuner.commands.plugins.plugin_list", broken)
    with pytest.raises(BrokenPipeError):
        call(["plugins"])


@pytest.mark.parametrize("arguments", ["plugins", "run --help"])
def test_a_reader_that_has_gone_is_no_error(arguments: str) -> None:
    command = f"{sys.executable} -m tuner {arguments} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], check=False, capture_output=True, text=True)  # noqa: S607 - any bash
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("where", ["tuner.cli.app", "cyclopts"])
def test_ctrl_c_while_the_command_line_is_imported_is_one_line(where: str) -> None:
    code = f"""
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == {where!r}:
            exec("raise KeyboardInterrupt")
sys.meta_path.insert(0, Interrupted())
from tuner.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tuner: interrupted\n")
