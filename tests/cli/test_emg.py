"""The example of muscle signals as a user meets it: run, export, and held-out recordings classified on the device."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tuner.cli.app import call
from tuner.results.run import Run
from tuner.runtime import Bundle, Personaliser

pytestmark = [pytest.mark.slow, pytest.mark.data]

EMG = Path(__file__).parents[2] / "examples" / "emg" / "task.toml"
DATA = Path(os.environ["TUNER_DATA"])
PERSON = "eval/male13/test1"  # the session that no trial sees
RECIPE = """
runtime.threads = 1
[knobs.recipe]
batch_size = 32
micro_batches = 1
patience = 0
"""
SPACE = f"""
strategies = ["freeze", "cache"]
[limits]
time = "30m"
trials = "2"
[knobs]
freeze.trainable_blocks = [2, 4]
cache.augment = 0.5
{RECIPE}
epochs = 4
optimiser = "adamw"
learning_rate = 1e-3
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """Return a folder, with a cache away from the user's own."""
    return tmp_path_factory.mktemp("emg")


def tuned(home: Path, name: str, space: str, *arguments: str) -> Run:
    (home / f"{name}.toml").write_text(space)
    run = home / name
    assert call(["run", str(EMG), "--space", str(home / f"{name}.toml"), "--out", str(run), *arguments]) == 0
    return Run.open(run)


def recordings(folder: Path) -> tuple[list[Path], list[int]]:
    """Write the held-out session's recordings as files; return them and their gestures."""
    with np.load(DATA / "emg" / "myo.npz") as file:
        signal, start, label = (file[f"{PERSON}/{part}"] for part in ("signal", "start", "label"))
    for number in range(len(label)):
        np.save(folder / f"{number}.npy", signal[start[number] : start[number + 1]].T)
    return [folder / f"{number}.npy" for number in range(len(label))], label.tolist()


def test_personalising_pays_and_a_held_out_session_is_classified_by_recordings(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tuned(home, "run", SPACE)
    best = max(run.record(trial).values["local_accuracy"] for trial in run.front)
    assert best > run.info.untouched.values["local_accuracy"] + 0.2

    assert call(["export", "--no-refit", str(home / "run"), str(home / "arm"), "--pick", "max(local_accuracy)"]) == 0
    bundle = Bundle.open(home / "arm")
    scores = bundle.info.scores.from_pixels
    assert scores["largest_logit_difference"] <= 1e-4
    assert scores["test_accuracy"] > 0.75

    files, gestures = recordings(tmp_path)
    personaliser = Personaliser(bundle)
    said = [personaliser.predict_file(file) for file in files]
    right = [one.label == bundle.labels[truth] for one, truth in zip(said, gestures, strict=True)]
    assert np.mean(right) >= scores["test_accuracy"] - 0.05
    assert {len(one.windows) for one in said} <= {17, 18, 19}
    capsys.readouterr()
    assert call(["predict", str(home / "arm"), str(files[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["label"] == said[0].label
