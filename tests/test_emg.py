"""The example of muscle signals as a user meets it: run, export, and held-out recordings classified on the device."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tuner.cli import call
from tuner.run import Run
from tuner.runtime import Bundle, Personaliser

pytestmark = [pytest.mark.slow, pytest.mark.data]

EMG = Path(__file__).parents[1] / "examples" / "emg" / "task.toml"
DATA = Path(os.environ.get("TUNER_DATA") or Path(__file__).parents[2] / "shared" / "data")
SPACE = """
strategies = ["freeze", "cache"]
[limits]
time = "5m"
trials = "2"
[knobs]
freeze.trainable_blocks = [2, 4]
cache.augment = 0.5
runtime.threads = 1
[knobs.recipe]
epochs = 4
batch_size = 32
optimiser = "adamw"
learning_rate = 1e-3
"""


def test_personalising_pays_and_a_held_out_session_is_classified_by_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (DATA / "README.md").is_file():
        pytest.skip(f"the real data is not at {DATA}: set TUNER_DATA to its folder")
    monkeypatch.setenv("TUNER_DATA", str(DATA))
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tuner.run.process_started", time.monotonic)
    (tmp_path / "space.toml").write_text(SPACE)
    assert call(["run", str(EMG), "--space", str(tmp_path / "space.toml"), "--out", str(tmp_path / "run")]) == 0
    run = Run.open(tmp_path / "run")
    best = max(run.record(trial).values["local_accuracy"] for trial in run.front)
    assert best > run.info["untouched"]["local_accuracy"] + 0.2

    assert call(["export", str(tmp_path / "run"), str(tmp_path / "arm"), "--pick", "max(local_accuracy)"]) == 0
    bundle = Bundle.open(tmp_path / "arm")
    scores = bundle.info["scores"]["from_pixels"]
    assert scores["largest_logit_difference"] <= 1e-4
    assert scores["test_accuracy"] > 0.75

    person = "eval/male13/test1"
    with np.load(DATA / "emg" / "myo.npz") as file:
        signal, start, label = (file[f"{person}/{part}"] for part in ("signal", "start", "label"))
    for number in range(len(label)):
        np.save(tmp_path / f"{number}.npy", signal[start[number] : start[number + 1]].T)
    files = [tmp_path / f"{number}.npy" for number in range(len(label))]
    said = Personaliser(bundle).predict_files(files)
    right = [one.label == bundle.labels[int(truth)] for one, truth in zip(said, label, strict=True)]
    assert np.mean(right) >= scores["test_accuracy"] - 0.05
    assert {len(one.windows) for one in said} <= {17, 18, 19}
    capsys.readouterr()
    assert call(["predict", str(tmp_path / "arm"), str(files[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["label"] == said[0].label
