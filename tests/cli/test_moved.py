"""A run outlives what happens to its files: they are moved, some are added, a class gets another name."""

from pathlib import Path

import pytest

from tests.cli.tiny_task import draw, write_all
from tuner.bundle.format import Bundle
from tuner.cli.app import call

pytestmark = pytest.mark.slow


def test_a_run_is_exported_and_resumed_after_its_project_was_moved_and_what_has_changed_is_said(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tuner(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = call([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    before, here = tmp_path / "before", tmp_path / "here"
    task = write_all(before)
    options = ("--space", before / "space.toml", "--out", before / "run")
    assert tuner("run", task, *options, "--trials", 1)[0] == 0

    before.rename(here)
    run, task = here / "run", here / "task.toml"
    resume = ("run", task, "--space", here / "space.toml", "--out", run, "--resume", "--trials", 2)
    code, said = tuner("export", run, here / "moved", "--no-refit")
    assert code == 0, said
    assert f"so {task} is taken" in said
    assert tuner(*resume)[0] == 0

    draw(here / "local/train/hat/more.png", 99)
    code, said = tuner("export", run, here / "grown")
    assert code == 0, said
    assert "(local.train: 1 more of class hat)" in said
    assert not Bundle.read(here / "grown").info.scores.refit_samples
    code, said = tuner("export", run, here / "trainable", "--trainable")
    assert code == 1
    assert "samples that the trial was trained on, and these have changed" in said
    code, said = tuner(*resume)
    assert code == 1
    assert "(now local.train: 1 more of class hat), which --resume cannot change" in said
    assert f"--from {run} --out NEW" in said

    (here / "local/train/hat/more.png").unlink()
    for folder in (here / "local").rglob("hat"):
        folder.rename(folder.with_name("cap"))
    code, said = tuner("export", run, here / "renamed")
    assert code == 1
    assert "class hat is called cap" in said

    task.unlink()
    code, said = tuner("export", run, here / "gone")
    assert code == 1
    assert "is not there: name it where it is now by --task" in said
