"""What a graph takes on one sample is known before it runs."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.limits.hostile.models import GROWING, packed, plain
from tuner.errors import BundleError
from tuner.ort.session import Session, open_session
from tuner.ort.sizes import peak_bytes

ROOT = Path(__file__).parents[2]


def measured(model: Path | bytes, *sample: int) -> int:
    return peak_bytes(model, sample, partial(open_session, threads=1, as_written=True))


@pytest.mark.parametrize("name", GROWING)
def test_a_chain_that_grows_is_refused_before_it_is_opened(name: str) -> None:
    with pytest.raises(BundleError, match=r"^the model takes [0-9.e+]+ GB of memory at once, more than the 1.1 GB"):
        Session(GROWING[name], 1)
    with pytest.raises(BundleError, match=r"more than the 4.3 GB"):
        open_session(GROWING[name], 1, fixed_shapes=True)


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


@pytest.mark.parametrize(("start", "end"), [(0, 1), (-4, -3), (None, None)])
def test_what_grows_behind_a_size_computed_from_a_shape_is_counted(start: int | None, end: int | None) -> None:
    cut = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    nodes = [
        helper.make_node("Shape", ["input"], ["sizes"], **cut),
        helper.make_node("Gather", ["sizes", "first"], ["batch"]),
        helper.make_node("Reshape", ["batch", "any"], ["row"]),
        helper.make_node("Concat", ["row", "any"], ["shape"], axis=0),
        helper.make_node("Reshape", ["input", "shape"], ["a"]),
        *(helper.make_node("Tile", ["a" * (at + 1), "repeats"], ["a" * (at + 2)]) for at in range(8)),
        helper.make_node("ReduceMean", ["a" * 9], ["logits"]),
    ]
    model = plain(nodes)
    del model.graph.node[len(nodes) :]
    for name, value in (("first", 0), ("any", [-1]), ("repeats", [1, 16])):
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    assert measured(packed(model), 1, 1, 8, 8) > 2**32 * 64
    with pytest.raises(BundleError, match="of memory at once"):
        Session(packed(model), 1)


@pytest.mark.parametrize("height", [10, 20])
def test_a_value_without_elements_is_refused_as_onnx_runtime_may_divide_by_their_number(height: int) -> None:
    pool = helper.make_node("AveragePool", ["input"], ["a"], kernel_shape=[height, 2], strides=[2, 2])
    model = plain([pool, helper.make_node("ReduceSum", ["a"], ["b"])])
    with pytest.raises(BundleError, match=r"cannot load the model \(a value in it has no elements\)"):
        Session(packed(model), 1)


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
