"""A run outlives what happens to it: it is stopped, its files are moved, some are added, a class gets another name."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.tiny_task import draw, write_all
from tuner.bundle.format import Bundle
from tuner.cli.app import call
from tuner.results.run import Run

pytestmark = pytest.mark.slow
#: Phases of a study.
BEGUN = ("scoring the untouched model", "filling the feature store", "trying plans")


def run_and_sleep(*arguments: object) -> str:
    """Call ``tuner run``, with all its processes stopped for a while once the study has begun; return what it says."""
    command = [sys.executable, "-m", "tuner", "run", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith(BEGUN):
                break
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGCONT)
        said += process.stderr.read()
    assert process.returncode == 0, said
    return said


def test_a_run_of_two_days_is_stopped_moved_and_grown_and_says_what_has_changed(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tuner(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = call([str(argument) for argument in arguments])
        return code, capsys.readouterr().err

    before, here = tmp_path / "before", tmp_path / "here"
    task = write_all(before)
    options = ("--space", before / "space.toml", "--out", before / "run")
    assert "which does not count as time of the run" in run_and_sleep(task, *options, "--trials", 1)

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
    again = ("run", task, "--space", here / "space.toml", "--from", run, "--out", here / "again", "--trials", 1)
    assert tuner(*again)[0] == 0
    first, then = (Run.open(folder) for folder in (run, here / "again"))
    assert then.records[0].knobs in [first.record(trial).knobs for trial in first.shortlist]

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
