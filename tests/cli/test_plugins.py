"""`tuner plugins why`: why a plugin or a strategy takes no part."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.printed import printed_json
from tests.cli.tiny_task import Cli
from tests.plugin.installed import STRATEGY, install
from tuner.cli.run import _file_of
from tuner.results.records.config import RunRequest


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path / "site", "shift", STRATEGY.replace("NAME", "shift"))
    install(tmp_path / "site", "broken", "raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def why(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = printed_json(capsys, "plugins", "why", *arguments)["answers"]
    return answers


def test_why_says_that_all_is_well(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, strategy = why(capsys, "shift")
    assert (plugin["kind"], plugin["takes_part"], plugin["reason"]) == ("plugin", True, "shift 1.2 is loaded")
    assert (strategy["kind"], strategy["takes_part"]) == ("strategy", True)
    assert strategy["reason"] == (
        "it writes shape, comes with plugin shift, and is in every search space that does not leave it out"
    )


def test_why_says_what_keeps_a_plugin_out(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (refused,) = why(capsys, "broken")
    assert (refused["takes_part"], refused["reason"]) == (False, "it is refused: RuntimeError: no licence")
    install(site, "second", STRATEGY.replace('"NAME": lower', '"shift": lower').replace("NAME", "second"))
    (plugin, _) = why(capsys, "second")
    assert plugin["reason"].startswith("second 1.2 is loaded; plugins 'second' and 'shift' both realise tail edit")
    monkeypatch.setenv("TUNER_PLUGINS", "-shift")
    (off,) = why(capsys, "shift")
    assert (off["takes_part"], off["reason"]) == (False, "it is switched off by TUNER_PLUGINS")


def test_why_looks_into_a_space(site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    space = tmp_path / "mine.toml"
    space.write_text('strategies = ["freeze", "cache"]\nknobs.cache.by = "none"')
    assert "names its strategies, and this one is not among them" in why(capsys, "shift", "--space", space)[1]["reason"]
    answers = why(capsys, "cache", "--space", space)
    assert answers[1]["reason"] == "knobs.cache.by of the search space is none: add 'cache' to it"
    assert [answer["takes_part"] for answer in answers] == [True, False]
    assert why(capsys, "freeze", "--space", space)[1]["reason"].endswith("and is in search space mine")
    assert why(capsys, "recipe", "--space", space)[0]["takes_part"]


def test_why_names_the_strategy_that_keeps_another_out(
    site: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    space = tmp_path / "mine.toml"
    space.write_text('strategies = ["lora", "growth", "cache"]')
    assert why(capsys, "growth", "--space", space)[-1]["reason"].startswith(
        "strategy 'lora' takes part in every plan, and the two exclude each other: leave 'lora' out"
    )
    space.write_text('strategies = ["lora", "freeze", "growth", "cache"]')
    assert why(capsys, "growth", "--space", space)[-1]["takes_part"]


def test_why_knows_local_plugins_and_names_what_is_near(site: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STRATEGY.replace("NAME", "mine"))
    assert cli("plugins", "why", "mine", "--plugin", tmp_path / "mine.py")[0] == 0
    code, line = cli("plugins", "why", "freezer")
    assert code == 1
    assert line.startswith("tuner: no plugin and no strategy is called 'freezer' (did you mean 'freeze'?); there are: ")


def test_a_task_of_a_local_plugin_is_not_beaten_by_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "from tuner.plugin import hookimpl\n\n@hookimpl\ndef tuner_tasks():\n    return {'rows': dict}\n"
    (tmp_path / "offers_rows.py").write_text(source)
    (tmp_path / "rows").mkdir()
    monkeypatch.chdir(tmp_path)
    try:
        assert _file_of("rows", RunRequest(plugins=(tmp_path / "offers_rows.py",))) == "rows"
    finally:
        sys.modules.pop("offers_rows", None)
    assert "task: rows, of a plugin; ./rows is the folder of this name" in capsys.readouterr().err
