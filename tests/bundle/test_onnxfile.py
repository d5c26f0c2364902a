"""Weights are put into an ONNX file by its bytes."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tuner.bundle.onnx_bytes import with_weights
from tuner.errors import BundleError


def model() -> bytes:
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [300, 2])
    after = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [300, 2])
    values = {"one": np.zeros((300, 2), np.float32), "two": np.zeros((300, 2), np.float32)}
    nodes = [helper.make_node("Add", ["x", "one"], ["z"]), helper.make_node("Add", ["z", "two"], ["y"])]
    weights = [numpy_helper.from_array(value, name) for name, value in values.items()]
    packed: bytes = helper.make_model(helper.make_graph(nodes, "g", [info], [after], weights)).SerializeToString()
    return packed


def test_only_the_named_weights_change() -> None:
    value = np.arange(600, dtype=np.float32).reshape(300, 2)
    changed = onnx.load_from_string(bytes(with_weights(model(), {"two": value})))
    onnx.checker.check_model(changed)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in changed.graph.initializer}
    assert np.array_equal(weights["two"], value)
    assert not weights["one"].any()


@pytest.mark.parametrize(
    ("content", "name", "count", "says"),
    [
        (model(), "three", 600, "it has none"),
        (model(), "two", 599, "there are 2400: export again"),
        (b"\x3a\xff", "two", 600, "the model file"),
        (b"\x07", "two", 600, "the model file"),
    ],
)
def test_weights_and_files_that_do_not_fit_are_refused(content: bytes, name: str, count: int, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        with_weights(content, {name: np.zeros(count, np.float32)})
