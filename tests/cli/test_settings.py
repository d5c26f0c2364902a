"""Options from the environment and from pyproject.toml: what is taken, in which order, and what never is."""

from pathlib import Path
from typing import Any

import pytest

from tuner.cli.app import add_commands, app, call
from tuner.cli.settings import FROM_FILE
from tuner.results.records.config import RunRequest


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An empty folder to work in; and what `tuner run --dry-run` and `tuner store list` were asked."""
    found: dict[str, Any] = {}

    def look(task: str, request: RunRequest, **_: Any) -> None:
        found.update(request=request)
        raise SystemExit(0)

    def files(store: Path | None) -> list[object]:
        found["store"] = store
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.commands.tune.dry_run.dry_run", look)
    monkeypatch.setattr("tuner_store.store.store_files", files)
    return found


def run(*arguments: str) -> None:
    call(["run", "digits", "--dry-run", *arguments])


def write(text: str) -> None:
    Path("pyproject.toml").write_text(text, encoding="utf-8")


def test_a_project_sets_limits_the_environment_goes_before_it_and_the_command_line_first(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write('[project]\nname = "x"\n[tool.tuner.run]\ntrials = 3\nmemory = "1G"\nseed = 5\ndeterministic = true\n')
    run()
    assert asked["request"] == RunRequest(trials=3, memory="1G", seed=5, deterministic=True)
    write('[tool.tuner.run]\ntrials = 3\nmemory = "1G"\ntime = "3m"\n')
    monkeypatch.setenv("TUNER_RUN_MEMORY", "2G")
    monkeypatch.setenv("TUNER_RUN_TIME", "2m")
    run("--time", "1m")
    assert asked["request"] == RunRequest(time="1m", memory="2G", trials=3)
    monkeypatch.setenv("TUNER_STORE_LIST_STORE", "mine")  # it names the command and the option
    assert call(["store", "list"]) == 0
    assert asked["store"] == Path("mine")


@pytest.mark.parametrize(
    ("table", "option", "value"),
    [
        ("run", "plugin", "['evil.py']"),
        ("run", "space", "'evil.toml'"),
        ("run", "store", "'evil'"),
        ("run", "from", "'evil'"),
        ("run", "resume", "true"),
        ("store.list", "store", "'evil'"),
    ],
)
def test_a_project_names_no_code_and_no_data_that_are_believed(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], table: str, option: str, value: str
) -> None:
    write(f"[tool.tuner.{table}]\n{option} = {value}\n")
    assert call([*table.split("."), *(["digits", "--dry-run"] if table == "run" else [])]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{option}: a file may set limits, not what is run or believed: give --{option} instead" in line
    assert asked == {}


def test_no_option_that_names_code_or_a_store_is_among_those_of_a_file() -> None:
    named = {"plugin", "task", "space", "store", "from", "samples", "plan", "resume", "trainable", "any-time", "kind"}
    assert not named & FROM_FILE
    add_commands()
    arguments = [one for name in ("run", "watch", "export") for one in app[name].assemble_argument_collection()]
    assert {name.lstrip("-") for argument in arguments for name in argument.names} >= FROM_FILE


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("[tool.tuner.run]\ntrails = 3", 1, "trails: there is no such option (did you mean 'trials'?)"),
        ('[tool.tuner.run]\ntrials = "many"', 2, "[trials] in pyproject.toml must be a whole number, got 'many'"),
        ("[tool.tuner]\nrun = 3", 1, "run of [tool.tuner] must be a table"),
        ("[tool.tuner.run", 1, "pyproject.toml cannot be read"),
        ('[tool.tuner.run]\ntask = "evil.py:main"', 1, "task: there is no such option"),
    ],
)
def test_a_project_with_mistakes_is_answered_in_one_line(
    capsys: pytest.CaptureFixture[str], text: str, code: int, message: str
) -> None:
    write(text)
    assert call(["run", "digits", "--dry-run"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_other_projects_and_other_commands_are_left_alone(asked: dict[str, Any]) -> None:
    write("[tool.other\nbroken")
    assert call(["store", "list"]) == 0
    write('[tool.tuner.run]\nmemory = "1G"\n')
    assert call(["store", "list"]) == 0
    write("[tool.tuner.run]\nplugin = []\n")
    assert call(["--help"]) == call(["run", "--help"]) == 0
    assert asked == {"store": None}


def test_completion_is_installed_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call(["--install-completion", "--shell", "bash"]) == 0
    capsys.readouterr()
    script = (tmp_path / ".local/share/bash-completion/completions/tuner").read_text(encoding="utf-8")
    assert [word for word in ("export", "--forget-at-most", "rollback") if word not in script] == []
