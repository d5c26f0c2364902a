"""Bad input that shows once the model is there: one line with the rule, the value and the way out, exit 1."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.tiny_task import SPACE, Cli, write
from tuner.cli.app import call
from tuner.errors import LIMIT, MISTAKE, NO_TRIAL_FITS
from tuner.search import stopping

pytestmark = pytest.mark.slow


def test_an_image_that_is_not_one(tune: Cli, task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = task.parent / "local/train/hat/3.png"
    bad.write_text("not a picture")
    code, line = tune(task, "--trials", "2")
    assert code == 1
    problem = f"{bad}: not an image that can be decoded (no known format)"
    assert f"1 file cannot be used: {problem}; replace or remove them, or set [input] skip_unreadable = true" in line
    task.write_text(task.read_text().replace("size = 16", "size = 16\nskip_unreadable = true"))
    arguments = ["--space", str(task.parent / "space.toml"), "--trials", "1", "--out", str(task.parent / "left-out")]
    assert call(["run", str(task), *arguments]) in {0, 1}
    assert f"warning: 1 file of the task is left out: {problem}" in " ".join(capsys.readouterr().err.split())


def test_weights_that_do_not_fit_and_the_same_folder_afterwards(tune: Cli, task: Path) -> None:
    np.savez(task.parent / "weights.npz", a=np.zeros(3))
    import torch

    torch.save({"0.0.weight": torch.zeros(4, 3, 3, 3)}, task.parent / "weights.pth")
    code, line = tune(write(task.parent, 'weights = "weights.pth"'), "--trials", "1")
    assert code == 1
    assert "model.weights: '0.0.weight' is [8, 3, 3, 3] in the model, [4, 3, 3, 3] in " in line
    assert "use the factory and arguments the weights were trained with" in line
    code, line = tune(write(task.parent, ""), "--trials", "1")
    assert code == 0, line


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        (
            "\n[knobs.freeze]\ntrainable_block = 1\n",
            (),
            "there is no knob 'freeze.trainable_block' (did you mean 'freeze.trainable_blocks'?)",
        ),
        (
            "learning_rate = 1e6\n",
            (),
            "recipe.learning_rate: the search space asks for 1000000.0, but this model allows [1e-06, 1]",
        ),
        ("", ("--time", "0.1s"), "took longer than --time allows: give more time"),
        ("", ("--memory", "1kB"), "--memory 1.0 kB is too small to run the frozen prefix, which took "),
    ],
)
def test_a_knob_or_a_budget_that_cannot_be_is_named(
    tune: Cli, task: Path, more: str, options: tuple[str, ...], message: str
) -> None:
    (task.parent / "space.toml").write_text(SPACE + more)
    code, line = tune(task, *options)
    assert code == (LIMIT if options else MISTAKE)
    assert message in line
    assert "--memory" not in options or line.endswith(": give more")


def test_a_model_without_a_cut_point_is_trained_whole(
    tune: Cli, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(task.parent, "", factory="net.py:tangled")
    assert call(["describe", str(task), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["note"] == "the model has no inner cut point: only whole-model training is offered"
    assert len(described["blocks"]) == 1
    arguments = ["--space", str(task.parent / "space.toml"), "--trials", "1", "--out", str(task.parent / "run")]
    assert call(["run", str(task), *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert described["note"] in " ".join(captured.err.split())
    trials: list[dict[str, Any]] = json.loads(captured.out)["trials"]
    assert {trial["plan"]["split"] for trial in trials} == {0}
    assert all(trial["state"] == "done" for trial in trials)


def test_training_that_diverges_fails_with_the_reason_and_no_trial_is_feasible(
    tune: Cli, task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = "learning_rate = 1.0\noptimiser = 'sgd'\nweight_decay = 0.1\nschedule = 'cosine'\nfreeze_bn = true\n"
    wild += "solve_again = false\nlabel_smoothing = 0.0\n[knobs.freeze]\ntrainable_blocks = 3\n"
    wild += "[knobs.gdm]\nweight = 1.0\nbalance = false\n"
    (task.parent / "space.toml").write_text(SPACE.replace("epochs = [1, 2]", "epochs = [60, 61]") + wild)
    text = task.read_text().replace("std = [0.5]", "std = [1e-6]")
    task.write_text(text)
    code, line = tune(task, "--trials", "2")
    assert code == NO_TRIAL_FITS
    assert re.search(
        r"no trial fits: [12] of 2 trials do not count because of (failures|diverged trainings); nearest", line
    )
    assert "lower recipe.learning_rate" in line  # the loss, or the logits of weights that are huge, are not finite
    assert call(["show", str(task.parent / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"]["failed"] == 2
    assert shown["front"] == []
    assert all("lower recipe.learning_rate" in trial["reason"] for trial in shown["trials"])


def test_no_feasible_trial_names_the_limit_and_the_nearest_miss(
    tune: Cli, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "REFUSALS_IN_A_ROW", 5)
    code, line = tune(task, "--train-time", "0.0001s")
    assert code == NO_TRIAL_FITS
    # a busy machine may refuse fewer than those in a row that end a run
    assert re.search(r"no trial fits: (\d+) of \1 trials do not count because of --train-time; nearest miss: ", line)
    assert "--train-time: needs " in line
