"""`tuner plugins new`: a package that works as it is."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.warm import forked
from tuner.cli.app import call
from tuner.plugin.core import build_host
from tuner.search.space import load_space
from tuner_testing.scaffold import kinds


def environment(folders: Iterable[Path]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, folders))}


@pytest.mark.slow
def test_new_packages_pass_their_own_tests_and_are_loaded(own_cache: Path, tmp_path: Path) -> None:
    folders = {kind: tmp_path / f"demo_{kind}" for kind in kinds()}
    for kind, folder in folders.items():
        name = f"tuner_{folder.name}"
        assert call(["plugins", "new", folder.name.replace("_", "-"), "--kind", kind, "--out", str(folder)]) == 0
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        common = {"pyproject.toml", "README.md", "space.toml", ".github/workflows/test.yml"}
        assert files == common | {f"{name}/__init__.py", f"{name}/py.typed", f"tests/test_{name}.py"}
        assert not [path for path in folder.rglob("*") if path.is_file() and "$name" in path.read_text()]
        source = (folder / name / "__init__.py").read_text()
        assert {*re.findall(r"(?:from|import) (tuner[\w.]*)", source)} - {"tuner.plugin"} <= {"tuner.models.digits"}
        workflow = (folder / ".github" / "workflows" / "test.yml").read_text()
        assert f"- run: tuner plugins check {folder.name} --badge kit.svg\n" in workflow
        assert 'run: test -z "$(git status --porcelain kit.svg)"\n' in workflow
        assert "](kit.svg)" in (folder / "README.md").read_text()
        host = build_host(local=[folder / name / "__init__.py"])
        host.check_local()
        assert host.problems == host.clashes() == []
        offered = ("strategy", "backend", "task", "objective")
        assert any(host.owner(what, own) for what in offered for own in (folder.name, f"{folder.name}_joules"))
        assert load_space(str(folder / "space.toml")).knobs
    tested = forked(["pytest", "-q", "-p", "no:cacheprovider"], tmp_path, environment(folders.values()))
    command = [sys.executable, "-m", "ruff", "check", "--line-length=120", '--config=src=["demo_*"]', "."]
    linted = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    for done in (tested, linted):
        assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in tested.stdout


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
            "a plugin's name must be lower-case letters, digits, _ and -, at most 64, got 'De-mo': give another one",
        ),
        (("closed-form",), "the name 'closed_form' is taken by what is installed: give another one"),
        (("freeze",), "the name 'freeze' is taken by what is installed: give another one"),
        (("mine", "--out", "{here}"), "is not empty: give another folder with --out"),
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
