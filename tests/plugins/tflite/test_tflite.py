"""TFLite files: LiteRT answers as ONNX Runtime does, in float32 and in int8."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.pretrained import with_weights
from tests.sessions import opened
from tuner import Run
from tuner.cli.app import call
from tuner.commands.refit import Refit
from tuner.errors import BundleError
from tuner.ort.session import Session
from tuner.search.processes.remote import RemoteSession
from tuner.task.builtin import digits
from tuner_tflite.devices import fits_edgetpu, fitted
from tuner_tflite.file import to_bytes
from tuner_tflite.graph import read_graph, without_quantisation
from tuner_tflite.interpreter import Interpreter, runners
from tuner_tflite.model import Operator, TfliteModel
from tuner_tflite.operators import convert
from tuner_tflite.quantise import calibrated, quantised, with_scales
from tuner_tflite.write import float_model, interface, label_lines

pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")

RUN = Path(__file__).parents[2] / "fixtures" / "digits" / "run"
SIDE = 16


def network(*middle: onnx.NodeProto) -> onnx.ModelProto:
    """Return a small network with what TFLite has otherwise: edges, channels, groups, a squeeze, a shuffle."""
    draw = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "w2": (8, 1, 3, 3), "w3": (8, 4, 1, 1), "w4": (8, 8, 1, 1), "w5": (3, 8)}
    held = {name: draw.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    held |= {"b1": draw.normal(0, 0.5, 8).astype(np.float32), "b5": np.zeros(3, np.float32)}
    sizes = {"flat": [-1, 8], "pairs": [-1, 2, 4, 8, 8], "whole": [-1, 8, 8, 8]}
    ends = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Conv", ["c", "w3"], ["d"], group=2),
        helper.make_node("Reshape", ["d", "pairs"], ["e"]),
        helper.make_node("Transpose", ["e"], ["f"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["f", "whole"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("Conv", ["h", "w4"], ["i"]),
        helper.make_node("Sigmoid", ["i"], ["j"]),
        helper.make_node("Mul", ["g", "j"], ["k"]),
        helper.make_node("Add", ["k", "b"], ["l"]),
        *(middle or [helper.make_node("Identity", ["l"], ["m"])]),
        helper.make_node("MaxPool", ["m"], ["n"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["n"], ["o"]),
        helper.make_node("Reshape", ["o", "flat"], ["p"]),
        helper.make_node("Gemm", ["p", "w5", "b5"], ["logits"], transB=1),
    ]
    own = [numpy_helper.from_array(value, name) for name, value in (held | ends).items()]
    own += [numpy_helper.from_array(np.array(value), name) for name, value in sizes.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, own)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_litert_answers_as_onnx_runtime_in_float32_and_in_int8() -> None:
    model, draw = network(), np.random.default_rng(1)
    face = interface("images", (0.5, 0.4, 0.3), (0.2,), 3, "SOFTMAX")
    pixels = draw.integers(0, 256, (24, SIDE, SIDE, 3)).astype(np.float32)
    normal = ((pixels / 255 - (0.5, 0.4, 0.3)) / 0.2).transpose(0, 3, 1, 2).astype(np.float32)
    assert (face.raw(normal) == pixels).all()
    logits = Session(model.SerializeToString()).logits(normal)
    truth = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    written = float_model(read_graph(model, "logits", normal[:1]), face)
    content = to_bytes(written, "float32")
    assert np.abs(Interpreter(content).answers(pixels) - truth).max() < 1e-5
    ranges = calibrated(written, content, [pixels[:12], pixels[12:]], len(pixels), pixels=True)
    for kind in ("int8", "uint8"):
        small = quantised(written, ranges, kind)
        answers = Interpreter(to_bytes(small, kind)).answers(pixels)
        assert np.abs(answers - truth).max() < 0.04
        assert {one.dtype for one in small.tensors} <= {"int8", "uint8", "int32"}
        light = quantised(written, ranges, kind, weights_only=True)
        assert np.abs(Interpreter(to_bytes(light, kind)).answers(pixels) - truth).max() < 0.04
        held = {one.name for one in light.tensors if one.data is not None and one.dtype == "int8"}
        assert {"w1", "w2", "w3", "w4"} <= held


def test_a_file_of_a_model_in_int8_has_its_numbers(tmp_path: Path) -> None:
    torch_part = pytest.importorskip("tuner_tflite.torch")
    quantiser = pytest.importorskip("tuner.backends.torch.onnx.quantise").Quantiser
    model, draw = network(), np.random.default_rng(1)
    model.graph.input[0].name = model.graph.node[0].input[0] = "input"
    onnx.save(model, tmp_path / "model.onnx")
    face = interface("images", (0.5, 0.4, 0.3), (0.2,), 3, "SOFTMAX")
    pixels = draw.integers(0, 256, (48, SIDE, SIDE, 3)).astype(np.float32)
    normal = ((pixels / 255 - (0.5, 0.4, 0.3)) / 0.2).transpose(0, 3, 1, 2).astype(np.float32)
    small = quantiser(tmp_path / "model.onnx", ["logits"], [normal[:24]]).quantised()
    logits = Session(small.SerializeToString(), 1).logits(normal)
    truth = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    whole, scales = without_quantisation(small)
    graph = read_graph(whole, "logits", normal[:1])
    written = with_scales(float_model(graph, face), torch_part.named(scales, graph, face), "uint8")
    answers = Interpreter(to_bytes(written, "")).answers(pixels)
    assert np.abs(answers - truth).max() < 0.02
    weighted = [one for one in written.operators if one.kind in {"CONV_2D", "DEPTHWISE_CONV_2D"}]
    assert {written.tensors[one.output].dtype for one in weighted} == {"int8"}
    with pytest.raises(BundleError, match="the numbers of a bundle in int8, whose answers have no range"):
        torch_part.named(scales, graph, interface("images", (), (), 3, ""))


def test_operators_that_do_not_fit_a_device_are_listed_or_refused() -> None:
    model = TfliteModel()
    model.input = model.tensor("x", (1, 4, 4, 8), "int8")
    model.output = model.tensor("y", (1, 4, 4, 8), "int8")
    pad = Operator("PAD", (model.input, model.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))), 1)
    model.operators = [pad, Operator("RELU6", (1,), 1)]
    assert fitted(model, "edgetpu") == ["  for edgetpu: all 2 operators fit"]
    model.operators.append(Operator("HARD_SWISH", (1,), 1))
    assert fitted(model, "micro") == ["  for micro: all 3 operators fit"]
    lines = fitted(model, "edgetpu")
    assert "1 of 3 operators do not fit: 1 HARD_SWISH" in lines[0]
    assert "takes the first 2 operators" in lines[1]
    model.operators.append(Operator("GELU", (1,), 1))
    with pytest.raises(BundleError, match="TFLite Micro has no GELU: export without --for"):
        fitted(model, "micro")
    with pytest.raises(BundleError, match="no operator can run there"):
        fitted(TfliteModel(model.tensors, model.operators[2:]), "edgetpu")


def test_limits_of_an_edge_tpu() -> None:
    model = TfliteModel()
    places = model.constant(np.array([3], np.int32))
    for shape, kind, inputs, does_fit in (
        ((1, 4, 4, 8), "RELU", (), True),
        ((1, 4, 2, 4, 8), "RELU", (), False),  # as channels are shuffled
        ((1, 1, 1, 16), "MEAN", (places,), True),
        ((1, 1, 1, 15), "MEAN", (places,), False),
        ((1, 16_000), "SOFTMAX", (), True),
        ((1, 16_001), "SOFTMAX", (), False),
    ):
        read, written = (model.tensor("x", shape, "int8") for _ in range(2))
        assert fits_edgetpu(model, Operator(kind, (read, *inputs), written)) is does_fit


def test_an_operator_that_is_not_written_is_named() -> None:
    model, sample = network(helper.make_node("Erf", ["l"], ["m"])), np.zeros((1, 3, SIDE, SIDE), np.float32)
    with pytest.raises(BundleError, match="does not write Erf: export without --tflite"):
        float_model(read_graph(model, "logits", sample), interface("arrays", (), (), 3, ""))


def test_a_label_with_a_line_break_is_refused() -> None:
    assert label_lines(["a b", "c"]) == "a b\nc\n"
    with pytest.raises(BundleError, match=r"but there is 'a\\nb': rename it"):
        label_lines(["a\nb", "c"])


def test_a_condition_is_a_constant_only_if_it_is_the_same_for_all_samples() -> None:
    face, sample = interface("arrays", (), (), 3, ""), np.ones((1, 3, SIDE, SIDE), np.float32)
    guarded = network(helper.make_node("IsNaN", ["l"], ["q"]), helper.make_node("Where", ["q", "low", "l"], ["m"]))
    content = to_bytes(float_model(read_graph(guarded, "logits", sample), face), "float32")
    truth = Session(guarded.SerializeToString()).logits(sample)
    assert np.abs(Interpreter(content).answers(sample) - truth).max() < 1e-4
    chosen = network(
        helper.make_node("Greater", ["l", "low"], ["q"]), helper.make_node("Where", ["q", "l", "low"], ["m"])
    )
    content, other = to_bytes(float_model(read_graph(chosen, "logits", sample), face), "float32"), -sample
    truth = Session(chosen.SerializeToString()).logits(other)
    assert np.abs(Interpreter(content).answers(other) - truth).max() < 1e-4


@pytest.mark.slow
def test_an_operator_that_is_not_written_is_refused_before_the_refit(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = pytest.importorskip("tuner.backends.torch.backend").TorchBackend()
    with_weights(own_cache)
    shutil.copytree(RUN, tmp_path / "run")
    plan = next(one.plan for one in Run.open(tmp_path / "run").records if one.trial == 3)
    about = {"plan": plan, "weights": tmp_path / "run" / "trials" / "3" / "weights.safetensors", "device": "micro"}
    opened(backend, digits()).ask("TFLite operators", **about)
    monkeypatch.setattr(convert, "CONVERTERS", {})
    with pytest.raises(BundleError, match=r"does not write .*Conv") as refusal:
        opened(backend, digits()).ask("TFLite operators", **about)

    def refuse(_session: RemoteSession, question: str, **_about: object) -> None:
        assert question == "TFLite operators"
        raise refusal.value

    monkeypatch.setattr(RemoteSession, "ask", refuse)
    monkeypatch.setattr(Refit, "carry_out", lambda *_: pytest.fail("refitted"))
    assert call(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--pick", "3", "--tflite", "float32"]) == 1
    assert "--tflite does not write" in capsys.readouterr().err


@pytest.mark.slow
def test_an_export_adds_a_file_that_answers_alike(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_weights(own_cache)
    shutil.copytree(RUN, tmp_path / "run")
    asked = ["export", str(tmp_path / "run"), str(tmp_path / "out"), "--no-refit", "--pick", "3", "--tflite"]
    assert call([*asked, "uint8", "--int8-loss", "2"]) == 0
    assert "the same class for" in capsys.readouterr().out
    asked[2] = str(tmp_path / "small")
    assert call([*asked, "uint8", "--int8", "--int8-loss", "5"]) == 0
    assert "computes with the numbers of the bundle" in capsys.readouterr().out
    asked[2] = str(tmp_path / "trainable")
    assert call([*asked, "float32", "--trainable"]) == 0
    assert "train.tflite: " in capsys.readouterr().out
    trains = runners((tmp_path / "trainable" / "tflite" / "train.tflite").read_bytes())
    assert set(trains) == {"train", "infer", "features", "save", "restore"}
    files, digits = tmp_path / "out" / "tflite", [str(digit) for digit in range(10)]
    assert (files / "labels.txt").read_text().split() == digits
    about = json.loads((files / "model.json").read_text())
    assert about["labels"] == digits
    assert about["output"]["dtype"] == "uint8"
    assert (files / "model.json").read_bytes() in (files / "model.tflite").read_bytes()
    assert call([*asked[:-1], "--for", "micro"]) == 2
    assert "give --tflite int8 too" in " ".join(capsys.readouterr().err.split())
    refused = {
        ("float32", "--int8"): "needs a bundle in float32",
        ("int8", "--int8", "--for", "micro"): "needs whole numbers throughout",
        ("float32", "--for", "edgetpu"): "give --tflite int8 or uint8",
    }
    for given, way in refused.items():
        assert call([*asked, *given]) == 2
        assert way in " ".join(capsys.readouterr().err.split())
