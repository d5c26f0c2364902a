"""The content of ``bundle.json`` and of replays: written, and read again as it was."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from tests.bundle.handmade import model
from tuner.bundle.format import FILE, MODEL, Bundle, file_hash, new_folder, seal, successor
from tuner.bundle.info import FORMAT, BundleInfo, TrainInfo
from tuner.bundle.replay import Replay
from tuner.bundle.scores import DeviceScores
from tuner.errors import BundleError
from tuner.store.codec import Codec, calibrate

TAIL: dict[str, Any] = {
    "format": FORMAT,
    "name": "digits",
    "made": "2026-11-22T06:15:07Z",
    "tuner": "0.1.0",
    "labels": ["0", "1"],
    "input": {"kind": "arrays", "size": None, "resize": None, "mean": [], "std": [], "window": None, "hop": None},
    "input_shape": [1, 8, 8],
    "loss": "single-label",
    "sentence": "train last 2 of 4 blocks on 180 local samples, 4 epochs SGD 1e-2",
    "evolved": {"grow-scratch": {"0.0": 10, "1.0": 21}},
    "train": {
        "format": 1,
        "kind": "tail",
        "weights": ["3.0.weight", "3.0.bias"],
        "cut": 2,
        "batch_size": 16,
        "replay_samples": 42,
        "check_samples": 252,
        "bits": 8,
        "bytes": 296945,
        "largest_loss_difference": 1.6e-07,
    },
    "run": {"trial": 3, "seed": 0},
    "scores": {
        "trial": {"local_accuracy": 0.97},
        "untouched": {"local_accuracy": 0.0},
        "from_pixels": {"local_accuracy": 0.97, "largest_logit_difference": 6.7e-06},
    },
    "parent": None,
}
EXITS: dict[str, Any] = {
    **{name: value for name, value in TAIL.items() if name not in {"evolved", "run"}},
    "parent": "0" * 64,
    "train": {**TAIL["train"], "kind": "exits", "exits": 1, "batch_size": 32},
    "exits": {
        "segments": ["segments/0.onnx", "segments/1.onnx"],
        "shares": [0.52, 1.0],
        "thresholds": [0.6],
        "temperatures": [0.09, 0.2],
        "tolerance": 0.01,
        "reference_accuracy": 0.94,
        "calibration_samples": 51,
        "labelled": True,
        "seconds": [2.1e-05, 3.2e-05],
        "front": [{"threshold": 0.0, "accuracy": 0.9, "mean_latency_seconds": 2.1e-05}],
    },
    "scores": {
        "untouched": {"local_accuracy": 0.0},
        "before": {"global_accuracy": None},
        "after": {"global_accuracy": 0.5, "losses": [2.0, 1.0], "samples": 60},
    },
}
del EXITS["train"]["weights"], EXITS["train"]["cut"]


@pytest.mark.parametrize("content", [TAIL, EXITS], ids=["tail", "exits"])
def test_what_is_read_is_written_with_the_same_keys_and_values(content: dict[str, Any]) -> None:
    assert BundleInfo.from_dict(content).to_dict() == {**content, "files": {}}
    train = {**content["train"], "left_out": ["distill"], "folds": 3}
    assert TrainInfo.from_dict(train).to_dict() == train
    with pytest.raises(BundleError, match="folds must be a whole number from 2 to 20"):
        TrainInfo.from_dict({**train, "folds": 1})


def test_sections_are_fields() -> None:
    tail, exits = BundleInfo.from_dict(TAIL), BundleInfo.from_dict(EXITS)
    assert tail.train is not None
    assert exits.train is not None
    assert (tail.train.cut, tail.train.weights, tail.train.exits) == (2, ("3.0.weight", "3.0.bias"), None)
    assert (exits.train.kind, exits.train.exits, exits.train.cut) == ("exits", 1, None)
    assert exits.scores.device == DeviceScores(None, 0.5, (2.0, 1.0), 60)
    assert exits.exits is not None
    assert exits.exits.front[0].mean_latency_seconds == 2.1e-05


def test_a_training_format_of_a_newer_version_can_be_read_by_who_only_predicts() -> None:
    newer = BundleInfo.from_dict({**TAIL, "train": {"format": 2, "graph": "train/all.onnx"}})
    assert newer.train == TrainInfo("", format=2)


def test_unknown_sections_are_carried_over(tmp_path: Path) -> None:
    with new_folder(tmp_path / "first") as part:
        model(part / MODEL, np.eye(3), carries=False)
        info = seal(part, {**TAIL, "sparsity": {"share": 0.5}})
    assert info.other == {"sparsity": {"share": 0.5}}
    parent = Bundle.open(tmp_path / "first")
    assert parent.info == info
    assert "<th>labels</th><td>" in parent._repr_html_()
    assert repr(parent) == f"<Bundle {str(tmp_path / 'first')!r} of digits: arrays [1 × 8 × 8] → 2 labels>"
    model(tmp_path / "two.onnx", 2 * np.eye(3), carries=False)
    replaced = {MODEL: (tmp_path / "two.onnx").read_bytes}
    with successor(parent, tmp_path / "second", replaced, DeviceScores(0.5, 0.6, (1.0,), 7)):
        pass
    child = Bundle.open(tmp_path / "second")
    assert child.info.other == info.other
    assert child.info.parent == parent.identity
    assert child.info.scores.untouched == parent.info.scores.untouched
    assert child.info.scores.device == DeviceScores(0.5, 0.6, (1.0,), 7)
    assert child.info.scores.from_pixels == {}
    assert child.info.files == {MODEL: file_hash(child.folder / MODEL)}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "has bundle format None, this version reads 1: update tuner"),
        ({"format": 2}, "has bundle format 2, this version reads 1: update tuner"),
        ({"format": 1}, "lacks 'files': export again"),
        ({**TAIL, "files": {}, "labels": 3}, "export again"),
    ],
)
def test_invalid_content_is_reported(content: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(BundleError, match=says):
        Bundle.open(tmp_path)


SHAPE = (3, 5, 5)


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_replay_comes_back_as_it_was(tmp_path: Path, *, per_sample: bool) -> None:
    maps = np.random.default_rng(0).random((7, *SHAPE), dtype=np.float32)
    codec = Codec(1, SHAPE, *calibrate(maps), per_sample)
    replay = Replay(codec, codec.encode(maps), np.arange(7))
    replay.save(tmp_path / "replay")
    with safe_open(tmp_path / "replay", "numpy") as file:
        assert file.metadata()["format"] == "1"
    rows = np.array([6, 0, 6])
    loaded = Replay.load(tmp_path / "replay")
    np.testing.assert_array_equal(loaded.read(rows), replay.read(rows))
    np.testing.assert_array_equal(loaded.labels, replay.labels)
