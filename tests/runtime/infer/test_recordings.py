"""A bundle of signals predicts whole recordings, with the base package alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save_model

from tuner.bundle.format import file_hash
from tuner.cli.app import call
from tuner.errors import TunerError
from tuner.runtime import Personaliser, Window

CHANNELS, WINDOW, HOP = 2, 10, 5


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose logits are the channels' means over a window: the louder channel's label wins."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    shapes = {"input": ["n", CHANNELS, WINDOW], "logits": ["n", CHANNELS]}
    recording, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [2])
    node = helper.make_node("ReduceMean", ["input", "axes"], ["logits"], keepdims=0)
    graph = helper.make_graph([node], "mean", [recording], [logits], [axes])
    save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx"
    )
    content = {
        "format": 1,
        "name": "arm",
        "labels": ["left", "right"],
        "input": {"kind": "signals", "mean": [1.0], "std": [0.5], "window": WINDOW, "hop": HOP},
        "input_shape": [CHANNELS, WINDOW],
        "loss": "single-label",
        "files": {"model.onnx": file_hash(folder / "model.onnx")},
    }
    (folder / "bundle.json").write_text(json.dumps(content))
    return folder


def loud(*where: tuple[int, int, int], length: int = 23) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A recording that is 2 where (channel, begin, end) says, and 1 elsewhere."""
    signal = np.ones((CHANNELS, length))
    for channel, begin, end in where:
        signal[channel, begin:end] = 2
    return signal


def test_the_mean_over_the_windows_decides_and_each_window_is_reported(bundle: Path, tmp_path: Path) -> None:
    signal = loud((0, 0, 10), (1, 12, 13))
    np.save(tmp_path / "one.npy", signal)
    prediction = Personaliser(bundle).predict_file(tmp_path / "one.npy")
    margin = np.array([2.0, 1.0 - 0.2, -0.2])  # of left over right, a window: the channels' means less 1, over 0.5
    each = 1 / (1 + np.exp(-margin))
    assert prediction.label == "left"
    assert prediction.probability == pytest.approx(each.mean(), abs=1e-6)
    assert [window.begin for window in prediction.windows] == [0, 5, 10]
    assert [window.label for window in prediction.windows] == ["left", "left", "right"]
    assert [window.probability for window in prediction.windows] == pytest.approx([*each[:2], 1 - each[2]], abs=1e-6)


def test_integers_are_read_as_they_are(bundle: Path) -> None:
    personaliser, signal = Personaliser(bundle), loud((1, 0, 23))
    prediction = personaliser.predict_recording(signal.astype(np.uint8))
    assert prediction.windows == personaliser.predict_recording(signal).windows
    assert prediction.windows[0] == Window(0, "right", prediction.probability)


def test_a_single_window_is_a_sample_like_any_other(bundle: Path) -> None:
    prediction = Personaliser(bundle).predict(loud((1, 0, 10), length=WINDOW).astype(np.float32))
    assert (prediction.label, prediction.windows) == ("right", ())
    assert "windows" not in prediction.to_dict()


def test_the_command_line_predicts_a_recording(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "one.npy", loud((0, 0, 23)))
    assert call(["predict", str(bundle), str(tmp_path / "one.npy"), "--json"]) == 0
    (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
    assert prediction["label"] == "left"
    assert set(prediction["windows"][0]) == {"begin", "label", "probability"}


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (loud(length=9), r"one\.npy: the recording has 9 time steps, fewer than input\.window = 10"),
        (np.ones((3, 20)), r"arm takes windows of shape \[2, 10\], but those of .*one\.npy have \[3, 10\]"),
        (np.ones(20), r"one\.npy: a recording must be numbers \[channels, time\], got float64 \[20\]"),
        (np.full((2, 20), np.nan), r"one\.npy: a recording must hold finite numbers"),
    ],
)
def test_a_file_that_is_no_recording_is_reported(
    bundle: Path, tmp_path: Path, signal: np.ndarray[tuple[int, ...], np.dtype[np.float64]], message: str
) -> None:
    np.save(tmp_path / "one.npy", signal)
    with pytest.raises(TunerError, match=message):
        Personaliser(bundle).predict_file(tmp_path / "one.npy")
