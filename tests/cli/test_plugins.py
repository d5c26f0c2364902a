"""The commands of plugins: why one takes no part, a new package, and one trial whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tiny_task import Cli
from tests.plugin.installed import STRATEGY, install
from tests.pretrained import with_weights
from tests.warm import forked
from tuner.commands.authors.scaffold import kinds
from tuner.plugin.core import build_host
from tuner.search.space import load_space


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path / "site", "shift", STRATEGY.replace("NAME", "shift"))
    install(tmp_path / "site", "broken", "raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def why(cli: Cli, capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    from tuner.cli.app import call

    capsys.readouterr()
    assert call([str(word) for word in ("plugins", "why", *arguments, "--json")]) == 0
    answers: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["answers"]
    return answers


def test_why_says_that_all_is_well(site: Path, cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, strategy = why(cli, capsys, "shift")
    assert (plugin["kind"], plugin["takes_part"], plugin["reason"]) == ("plugin", True, "shift 1.2 is loaded")
    assert (strategy["kind"], strategy["takes_part"]) == ("strategy", True)
    assert strategy["reason"] == (
        "it writes shape, comes with plugin shift, and is in every search space that does not leave it out"
    )


def test_why_says_what_keeps_a_plugin_out(
    site: Path, cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (refused,) = why(cli, capsys, "broken")
    assert (refused["takes_part"], refused["reason"]) == (False, "it is refused: RuntimeError: no licence")
    install(site, "second", STRATEGY.replace('"NAME": lower', '"shift": lower').replace("NAME", "second"))
    (plugin, _) = why(cli, capsys, "second")
    assert plugin["reason"].startswith("second 1.2 is loaded; plugins 'second' and 'shift' both realise tail edit")
    monkeypatch.setenv("TUNER_PLUGINS", "-shift")
    (off,) = why(cli, capsys, "shift")
    assert (off["takes_part"], off["reason"]) == (False, "it is switched off by TUNER_PLUGINS")


def test_why_looks_into_a_space(site: Path, cli: Cli, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    space = tmp_path / "mine.toml"
    space.write_text('strategies = ["freeze", "cache"]\nknobs.cache.by = "none"')
    assert (
        "names its strategies, and this one is not among them"
        in why(cli, capsys, "shift", "--space", space)[1]["reason"]
    )
    answers = why(cli, capsys, "cache", "--space", space)
    assert answers[1]["reason"] == "knobs.cache.by of the search space is none: add 'cache' to it"
    assert [answer["takes_part"] for answer in answers] == [True, False]
    assert why(cli, capsys, "freeze", "--space", space)[1]["reason"].endswith("and is in search space mine")
    assert why(cli, capsys, "recipe", "--space", space)[0]["takes_part"]


def test_why_names_the_strategy_that_keeps_another_out(site: Path, cli: Cli, capsys: Any, tmp_path: Path) -> None:
    space = tmp_path / "mine.toml"
    space.write_text('strategies = ["lora", "growth", "cache"]')
    assert why(cli, capsys, "growth", "--space", space)[-1]["reason"].startswith(
        "strategy 'lora' takes part in every plan, and the two exclude each other: leave 'lora' out"
    )
    space.write_text('strategies = ["lora", "freeze", "growth", "cache"]')
    assert why(cli, capsys, "growth", "--space", space)[-1]["takes_part"]


def test_why_knows_local_plugins_and_names_what_is_near(site: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STRATEGY.replace("NAME", "mine"))
    assert cli("plugins", "why", "mine", "--plugin", tmp_path / "mine.py")[0] == 0
    code, line = cli("plugins", "why", "freezer")
    assert code == 1
    assert line.startswith("tuner: no plugin and no strategy is called 'freezer' (did you mean 'freeze'?); there are: ")


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds())
def test_a_new_package_passes_its_own_test_and_is_loaded(
    kind: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tuner_demo", sys)
    del sys.modules["tuner_demo"]  # and again after the test: the next one is another package
    folder = tmp_path / "demo"
    assert cli("plugins", "new", "demo", "--kind", kind, "--out", folder)[0] == 0
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    common = {"pyproject.toml", "README.md", "space.toml", ".github/workflows/test.yml"}
    assert files == common | {"tuner_demo/__init__.py", "tuner_demo/py.typed", "tests/test_tuner_demo.py"}
    assert not [path for path in folder.rglob("*") if path.is_file() and "$name" in path.read_text()]
    with_weights(Path(os.environ["TUNER_CACHE"]))
    tested = forked(["pytest", "-q", "-p", "no:cacheprovider"], folder, environment(folder))
    command = [sys.executable, "-m", "ruff", "check", "--line-length=120", "."]
    linted = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    for done in (tested, linted):
        assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in tested.stdout
    host = build_host(local=[folder / "tuner_demo" / "__init__.py"])
    host.check_local()
    assert host.problems == host.clashes() == []
    assert any(host.owner(what, "demo") for what in ("strategy", "backend", "task", "objective"))
    assert load_space(str(folder / "space.toml")).knobs


def test_there_is_a_template_of_each_kind() -> None:
    assert kinds() == ["backend", "data", "loss", "lowering", "objective", "strategy", "task"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("demo", "--kind", "strategies"),
            "--kind must be one of backend, data, loss, lowering, objective, strategy, task, got 'strategies' (d",
        ),
        (
            ("De-mo",),
            "a plugin's name must be lower-case letters, digits and _, at most 64, got 'De-mo': give another one",
        ),
        (("freeze",), "the name 'freeze' is taken by what is installed: give another one"),
        (("demo", "--out", "{here}"), "is not empty: give another folder with --out"),
    ],
)
def test_a_package_that_could_not_work_is_refused(
    arguments: tuple[str, ...], reason: str, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, line = cli("plugins", "new", *(word.format(here=tmp_path) for word in arguments))
    assert code == (2 if reason.startswith("--kind") else 1)
    assert reason in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt"]
