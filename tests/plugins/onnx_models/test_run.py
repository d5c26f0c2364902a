"""A run of an ONNX file whose first nodes stay frozen: the processes of its trials find the plugin too."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.cli.printed import printed_json
from tests.plugins.onnx_models.files import network

pytestmark = pytest.mark.slow
TASK = """
[model]
weights = "frozen.onnx"
[global]
kind = "arrays"
train = "global.npz"
[local]
kind = "arrays"
train = "local.npz"
"""
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[knobs]
freeze.trainable_blocks = [1, 2]
runtime.threads = 1
[knobs.recipe]
epochs = 1
batch_size = 8
"""


def test_it_is_described_tuned_exported_and_predicted_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    odd = helper.make_node("ThresholdedRelu", ["r1"], ["m"], alpha=0.1)  # PyTorch has it not: it stays frozen
    (tmp_path / "frozen.onnx").write_bytes(network([odd]).SerializeToString())
    noise = np.random.default_rng(0).normal(size=(24, 3, 8, 8)).astype(np.float32)
    for name, label in (("global", np.arange(24) % 3), ("local", np.full(24, 3))):
        x = noise + label[:, None, None, None].astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x_train=x[:16], y_train=label[:16], x_val=x[16:], y_val=label[16:])
    np.save(tmp_path / "one.npy", noise[0])
    (tmp_path / "task.toml").write_text(TASK)
    (tmp_path / "space.toml").write_text(SPACE)
    task, run, bundle = (tmp_path / name for name in ("task.toml", "run", "bundle"))
    described = printed_json(capsys, "describe", task)
    assert "8 of 12 nodes as PyTorch, those before them frozen" in described["traced_by"]
    asked = ("--space", tmp_path / "space.toml", "--trials", 1, "--deterministic", "--out", run)
    shown = printed_json(capsys, "run", task, *asked)
    assert shown["counts"]["done"] == 1
    exported = printed_json(capsys, "export", "--no-refit", run, bundle)
    assert exported["scores"]["from_pixels"]["largest_logit_difference"] <= 1e-3
    (predicted,) = printed_json(capsys, "predict", bundle, tmp_path / "one.npy")["predictions"]
    assert predicted["label"] in {"0", "1", "2", "3"}
