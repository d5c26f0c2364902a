"""`tuner plugins new`: a package that works as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm import forked
from tuner.cli.app import call
from tuner.plugin.core import build_host
from tuner.search.space import load_space
from tuner_testing.scaffold import kinds


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds())
def test_a_new_package_passes_its_own_test_and_is_loaded(
    kind: str, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tuner_demo", sys)
    del sys.modules["tuner_demo"]  # and again after the test: the next one is another package
    folder = tmp_path / "demo"
    assert call(["plugins", "new", "demo", "--kind", kind, "--out", str(folder)]) == 0
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    common = {"pyproject.toml", "README.md", "space.toml", ".github/workflows/test.yml"}
    assert files == common | {"tuner_demo/__init__.py", "tuner_demo/py.typed", "tests/test_tuner_demo.py"}
    assert not [path for path in folder.rglob("*") if path.is_file() and "$name" in path.read_text()]
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
    arguments: tuple[str, ...], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code = call(["plugins", "new", *(word.format(here=tmp_path) for word in arguments)])
    assert code == (2 if reason.startswith("--kind") else 1)
    assert reason in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt"]
