"""What a graph takes on one sample is known before it runs."""

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.limits.hostile.models import packed, plain
from tuner.errors import BundleError
from tuner.ort.session import Session, open_session
from tuner.ort.sizes import peak_bytes

ROOT = Path(__file__).parents[2]


def measured(model: Path | bytes, *sample: int) -> int:
    return peak_bytes(model, sample, partial(open_session, threads=1, as_written=True))


def chain(operator: str, count: int, *more: str, **attributes: object) -> bytes:
    """Return a model with a chain of nodes, each of which reads the one before twice, or a constant too."""
    nodes, value = list[onnx.NodeProto](), "input"
    for at in range(count):
        nodes.append(helper.make_node(operator, [value, *(more or (value,))], [f"large{at}"], **attributes))
        value = f"large{at}"
    nodes.append(helper.make_node("ReduceSum", [value], ["total"], keepdims=0))
    model = plain(nodes, [numpy_helper.from_array(np.ones((1, 1, 4, 4), np.float32), "kernel")])
    model.graph.node[-1].output[0] = "raw"
    model.graph.node.append(helper.make_node("Add", ["raw", "total"], ["logits"]))
    return packed(model)


@pytest.mark.parametrize(
    "model",
    [
        chain("Concat", 26, axis=3),
        chain("Einsum", 1, *["input"] * 4, equation="nahw,nbij,nckl,ndmo,nepq->nhwijklmopq"),
        chain("ConvTranspose", 2, "kernel", strides=[4096, 4096]),
    ],
    ids=["Concat", "Einsum", "ConvTranspose"],
)
def test_a_chain_that_grows_is_refused_before_it_is_opened(model: bytes) -> None:
    with pytest.raises(BundleError, match=r"^the model takes [0-9.e+]+ GB of memory at once, more than 1.1 GB"):
        Session(model, 1)
    with pytest.raises(BundleError, match=r"more than 4.3 GB"):
        open_session(model, 1, fixed_shapes=True)


def test_sizes_that_a_file_leaves_open_are_those_of_the_first_sample() -> None:
    rows = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, "height", "width"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    node = helper.make_node("Einsum", ["input", "input"], ["logits"], equation="nahw,nbij->nhwij")
    graph = helper.make_graph([node], "g", [rows], [out])
    model = packed(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    session = Session(model, 1)
    with pytest.raises(BundleError, match=r"takes 67\.2 GB"):
        session.run(np.zeros((2, 1, 360, 360), np.float32), "logits")
    assert session.run(np.zeros((2, 1, 3, 3), np.float32), "logits")[0].shape == (2, 3, 3, 3, 3)


def test_what_lives_at_once_is_counted_and_old_files_declare_their_constants_as_inputs() -> None:
    nodes = [helper.make_node("Flatten", ["input"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    nodes += [helper.make_node("Relu", ["b"], ["c"]), helper.make_node("MatMul", ["c", "w"], ["logits"])]
    model = plain(nodes)
    del model.graph.node[-2:]
    assert measured(packed(model), 1, 1, 8, 8) == 2 * 64 * 4
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims))
    model.ir_version = 3
    assert measured(packed(model)) == 2 * 64 * 4


def test_every_bundle_of_ours_takes_little() -> None:
    paths = sorted((ROOT / "tests/fixtures").rglob("*.onnx"))
    assert len(paths) > 5
    assert all(0 < measured(path) < 10**6 for path in paths)
