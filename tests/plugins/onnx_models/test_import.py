"""An ONNX file as the model: opened, cut, widened; and refused in one line where it cannot be."""

import os
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from benchmarks.limits.hostile.models import models
from tests.plugins.onnx_models.files import made, network, task_of, weights
from tuner.backends.torch.model.graph.layout import channels_last
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.model.vision import torchvision
from tuner.backends.torch.onnx.inference import write_onnx
from tuner.errors import TaskError
from tuner.ort.session import Session
from tuner.task import ArraySamples, Domain, InputSpec
from tuner.task.file.load import open_task
from tuner_onnx_models.torch.convert import imported
from tuner_onnx_models.torch.frozen import splice

pytestmark = pytest.mark.slow
DATA = Path(os.environ.get("TUNER_DATA") or Path(__file__).parents[4] / "shared/data")


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def odd() -> ModelProto:
    """Return the network with an operator that has no form in PyTorch, and its result read twice."""
    node = helper.make_node("ThresholdedRelu", ["r1"], ["m"], name="odd", alpha=0.1)
    return network([node])


@pytest.mark.parametrize("batch", ["n", 1])
def test_a_file_is_cut_and_widened_as_any_model(tmp_path: Path, batch: int | str) -> None:
    loaded = load(task_of(saved(network(batch=batch), tmp_path)))
    assert loaded.info.name == "model.onnx"
    assert (
        loaded.info.traced_by == "torch.fx, of an ONNX file, 12 of 12 nodes as PyTorch, without the Softmax at its end"
    )
    assert [block.name for block in loaded.info.blocks] == ["stem.0", "body", "last", "h"]
    head = loaded.model.get_submodule("h")
    assert isinstance(head, torch.nn.Linear)
    assert torch.equal(head.weight[:3], torch.from_numpy(weights(16, 3).T))
    assert not head.weight[3].any()
    assert loaded.model(torch.rand(5, 3, 8, 8)).shape == (5, 4)


def test_channels_may_come_last(tmp_path: Path) -> None:
    transposed = helper.make_node("Transpose", ["x"], ["maps"], perm=[0, 3, 1, 2])
    model = network()
    model.graph.node[0].input[0] = "maps"
    model.graph.node.insert(0, transposed)
    shape = model.graph.input[0].type.tensor_type.shape
    shape.CopyFrom(helper.make_tensor_value_info("x", 1, ["n", "h", "w", 3]).type.tensor_type.shape)
    assert "13 of 13 nodes as PyTorch, channels last," in load(task_of(saved(model, tmp_path))).info.traced_by


def test_values_may_be_in_another_file_of_the_folder(tmp_path: Path) -> None:
    model = network()
    onnx.save_model(model, tmp_path / "model.onnx", save_as_external_data=True, location="v.data", size_threshold=0)
    assert "12 of 12" in imported(task_of(tmp_path / "model.onnx"))[1]
    (tmp_path / "v.data").unlink()
    with pytest.raises(TaskError, match=r"has values in 'v.data', which is not in its folder: copy it there"):
        imported(task_of(tmp_path / "model.onnx"))


def test_what_has_no_form_stays_frozen_in_onnx_runtime(tmp_path: Path) -> None:
    loaded = load(task_of(saved(odd(), tmp_path)))
    assert "8 of 12 nodes as PyTorch, those before them frozen in ONNX Runtime" in loaded.info.traced_by
    assert [block.name for block in loaded.info.blocks] == ["body", "last", "h"]
    batch = torch.rand(3, 3, 8, 8)
    write_onnx(loaded.model, batch, tmp_path / "written.onnx", ["logits"])
    with torch.inference_mode():
        wanted = loaded.model(batch).numpy()
    assert np.allclose(Session(tmp_path / "written.onnx").logits(batch.numpy()), wanted, atol=1e-5)
    assert all(node.domain != "tuner" for node in onnx.load(tmp_path / "written.onnx").graph.node)
    splice(tmp_path / "written.onnx")  # nothing is left to replace
    loaded.model(batch).sum().backward()
    assert loaded.model.get_submodule("body").weight.grad is not None


def test_a_quantised_file_opens_with_its_quantised_nodes_frozen(tmp_path: Path) -> None:
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the library has no types
        left = 4

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            return (
                {"x": np.random.default_rng(self.left).normal(size=(1, 3, 8, 8)).astype(np.float32)}
                if self.left
                else None
            )

    plain = network()
    nodes = plain.graph.node
    del nodes[-3:]  # without its Softmax, the file gives what is compared; its head is one node
    nodes.append(helper.make_node("Gemm", ["f", "head", "bias"], ["logits"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_static(saved(plain, tmp_path), tmp_path / "q.onnx", Reader(), quant_format=QuantFormat.QDQ)
    quantised = onnx.load(tmp_path / "q.onnx")
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in quantised.graph.node}
    loaded = load(task_of(tmp_path / "q.onnx"))
    x = np.random.default_rng(9).normal(size=(5, 3, 8, 8)).astype(np.float32)
    theirs = onnxruntime.InferenceSession(tmp_path / "q.onnx").run(None, {"x": x})[0]
    with torch.inference_mode():
        own = loaded.model(torch.from_numpy(x)).numpy()[:, :3]
    clipped = own.clip(theirs.min(), theirs.max())  # the last rounding, which is left out, ends at these
    assert np.abs(clipped - theirs).max() < 0.02 * np.abs(theirs).max()
    assert loaded.model.get_submodule("frozen") is not None


def _trains(kind: str) -> ModelProto:
    model = network()
    nodes = model.graph.node
    if kind == "norm":
        nodes[1].attribute.append(helper.make_attribute("training_mode", 1))
    elif kind == "old norm":
        nodes[1].output.extend(["mean1", "var1"])
    else:
        held = [("ratio", np.float32(0.5)), ("on", np.bool_(kind == "dropout"))]
        model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in held)
        nodes[3].CopyFrom(helper.make_node("Dropout", ["r1", "ratio", "on"], ["m"]))
    return model


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("norm", "normalises by each batch"),
        ("old norm", "normalises by each batch"),
        ("dropout", "drops values"),
        ("off", ""),
    ],
)
def test_a_file_of_training_mode_says_how_to_export_it(tmp_path: Path, kind: str, message: str) -> None:
    file = saved(_trains(kind), tmp_path)
    if not message:
        assert load(task_of(file)).info.num_blocks
        return
    with pytest.raises(TaskError, match=rf"was exported in training mode: .* {message}.*: export it again after model"):
        load(task_of(file))


@pytest.mark.parametrize(("value", "width"), [("c3", 16), ("f", 16), ("m", 8)])
def test_a_head_is_put_on_an_inner_value(tmp_path: Path, value: str, width: int) -> None:
    loaded = load(task_of(saved(odd(), tmp_path), known=0, output=value))
    assert loaded.info.traced_by.endswith(f", with a new head on {value!r}") or not loaded.info.traced_by
    assert loaded.model.get_submodule("new_head").weight.shape == (4, width)
    assert loaded.model(torch.rand(2, 3, 8, 8)).shape == (2, 4)


def _changed(change: Callable[[ModelProto], object]) -> bytes:
    changed = network()
    change(changed)
    packed: bytes = changed.SerializeToString()
    return packed


def _input(name: str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, ["n", 3, 8, 8])


def _outside(location: str) -> bytes:
    def change(model: ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return _changed(change)


def _with_two_inputs(model: ModelProto) -> None:
    model.graph.input.append(_input("y"))
    model.graph.node[6].input[1] = "y"


def _with_two_outputs(model: ModelProto) -> None:
    model.graph.output[0].name = "h"
    model.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, None))


def _single(operator: str) -> bytes:
    packed: bytes = made([helper.make_node(operator, ["x"], ["logits"])], {}, ["n", 3, 8, 8]).SerializeToString()
    return packed


_SIZES = {"sizes": np.array([8, 1, 4, 4])}
_MOVED = [
    helper.make_node("Reshape", ["r1", "sizes"], ["q"]),
    helper.make_node("Transpose", ["q"], ["m"], perm=[1, 0, 2, 3]),
]
_PLAIN = network().SerializeToString()
REFUSED: list[tuple[bytes, dict[str, Any], str]] = [
    (b"not a model\n" * 30, {}, "model.onnx is not an ONNX file"),
    (b"", {}, "is not an ONNX file with a graph of operators"),
    (_outside("../secret"), {}, "has values in '../secret', which must be a file in the same folder"),
    (_outside("model.data"), {}, "has values in 'model.data', which is not in its folder"),
    (_changed(lambda m: setattr(m.graph.node[2], "op_type", "Magic")), {}, "node 'r1' is the operator 'Magic', which"),
    (_changed(lambda m: setattr(m.graph.node[2], "domain", "com.us")), {}, "'r1' is the operator 'com.us.Relu', which"),
    (_changed(lambda m: m.graph.input.append(_input("y"))), {}, r"has 2 inputs \(x, y\): name the one .* as model"),
    (_PLAIN, {"input": "y"}, "model.input: .* has no input 'y': it has x"),
    (_changed(_with_two_inputs), {"input": "x"}, "computes 'scores' from the input 'y' too, but only 'x' can be given"),
    (_changed(lambda m: m.graph.input[0].CopyFrom(_input("x", 11))), {}, "takes double, must be float32"),
    (_changed(_with_two_outputs), {}, r"has 2 outputs \(h, scores\): name the one with .* as model.output"),
    (_PLAIN, {"output": "scorse"}, r"has no value 'scorse' \(did you mean 'scores'\?\)"),
    (network(size=9).SerializeToString(), {}, r"takes samples of shape \[3, 9, 9\], but these are \[3, 8, 8\]: set"),
    (_PLAIN, {"output": "c3"}, r"knows none of the global classes: leave \[global\] out"),
    (_single("ThresholdedRelu"), {}, "the node 'logits' is the operator ThresholdedRelu, which cannot be trained here"),
    (_single("Relu"), {}, r"the output 'logits' of .* has the shape \[1, 3, 8, 8\], must be"),
    (network(_MOVED, _SIZES, 1).SerializeToString(), {}, "with a free number of samples"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "spec", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_file_that_cannot_be_a_model_is_refused_in_one_line(
    content: bytes, spec: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(TaskError, match=reason) as caught:
        imported(task_of(path, **spec))
    assert "\n" not in str(caught.value)


def test_outputs_of_no_linear_layer_are_refused_with_the_way_out(tmp_path: Path) -> None:
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["p"]), helper.make_node("Flatten", ["p"], ["logits"])]
    task = task_of(saved(made(nodes, {}, ["n", 3, 8, 8]), tmp_path))
    with pytest.raises(TaskError, match=r"no linear layer .* or name a value between the file's nodes as model.output"):
        load(task)


def test_hostile_files_are_opened_or_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("secret")
    tried, opened = 0, list[str]()
    for name, content in models("../canary"):
        if "1,100,000" in name:
            continue  # takes seconds to be made
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        with suppress(TaskError):
            load(task_of(path, (1, 8, 8)))
            opened.append(name)
        tried += 1
    assert tried > 50
    assert len(opened) < 5


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ('weights = "net.pth"', "model.factory is missing: add it"),
        ('weights = "model.onnx"\nfactory = "a:b"', "holds the network too: leave model.factory out"),
        ('weights = "model.onnx"\narguments = { a = 1 }', "holds the network too: leave model.arguments out"),
        ('weights = "other.onnx"', "model.weights: no such file"),
        ('factory = "onnx:model"', r"a file \.onnx is given as model.weights, without model.factory"),
    ],
)
def test_a_task_file_says_what_it_lacks(model: str, reason: str, tmp_path: Path) -> None:
    saved(network(), tmp_path)
    (tmp_path / "task.toml").write_text(f'[model]\n{model}\n[local]\nkind = "arrays"\ntrain = "a.npz"')
    with pytest.raises(TaskError, match=reason):
        open_task(str(tmp_path / "task.toml"))


def test_without_the_plugin_the_error_says_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(network(), tmp_path)
    (tmp_path / "task.toml").write_text('[model]\nweights = "model.onnx"\n[local]\nkind = "arrays"\ntrain = "a.npz"')
    monkeypatch.setenv("TUNER_PLUGINS", "-onnx-models")
    with pytest.raises(TaskError, match=r"opens as a model \(none\): see `tuner plugins`, and TUNER_PLUGINS, which"):
        open_task(str(tmp_path / "task.toml"))
    with pytest.raises(TaskError, match=r"no installed plugin opens .*/model\.onnx as a model: see `tuner plugins`"):
        load(task_of(path))


@pytest.mark.data
def test_the_real_mobilenet_gives_the_logits_that_it_gives_as_pytorch(tmp_path: Path) -> None:
    network = torchvision().models.mobilenet_v2().eval()
    network.load_state_dict(torch.load(DATA / "models/mobilenet_v2_imagenet.pth", weights_only=True))
    sample, path = torch.rand(1, 3, 64, 64), tmp_path / "model.onnx"
    with redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older exporter, which says that it is
        torch.onnx.export(network, (sample,), path, dynamo=False, opset_version=12)
    loaded = load(task_of(path, (3, 64, 64)))
    assert loaded.info.traced_by == "torch.fx, of an ONNX file, 100 of 100 nodes as PyTorch"
    assert loaded.info.num_blocks == 33
    batch = torch.rand(4, 3, 64, 64)
    with torch.inference_mode():
        wanted, given = network(batch)[:, :3], loaded.model(batch)[:, :3]
    assert torch.allclose(given, wanted, atol=1e-3)


def test_what_follows_the_last_layer_of_a_regression_is_kept(tmp_path: Path) -> None:
    task = task_of(saved(network(), tmp_path))
    targets = np.zeros((8, 3), np.float32)
    domain = Domain(*(ArraySamples(weights(8, 3, 8, 8), targets, InputSpec("arrays")) for _ in range(2)))
    regression = replace(task, loss="regression", local=domain, labels=("a", "b", "c"), local_labels=())
    assert imported(task)[1].endswith("without the Softmax at its end")
    assert imported(regression)[1] == "an ONNX file, 13 of 13 nodes as PyTorch"


def test_constants_of_five_dimensions_leave_the_layout_as_it_is() -> None:
    module = torch.nn.Conv2d(4, 4, 3)
    module.register_buffer("mask", torch.zeros(1, 2, 1, 3, 3))
    channels_last(module)
    assert module.weight.is_contiguous(memory_format=torch.channels_last)
    assert isinstance(module.weight, torch.nn.Parameter)
