"""Every form of an operator, compared with ONNX Runtime; the import itself refuses what differs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

from tests.plugins.onnx_models.files import Constants, made, task_of, weights
from tuner_onnx_models.torch.convert import FORMS, imported

pytestmark = pytest.mark.slow
IMAGE = (4, 6, 6)
_ONE = {"c": weights(4, 1, 1)}
#: Operator, its other inputs than the samples, its attributes, the shape of a sample, the version of the operators.
CASES: list[tuple[str, Constants, dict[str, Any], tuple[int, ...], int]] = [
    *((name, {}, {}, IMAGE, 20) for name in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Mish", "Softplus", "Gelu")),
    *((name, {}, {}, IMAGE, 17) for name in ("Abs", "Exp", "Erf", "Neg", "Sign", "Softsign", "Selu", "Floor", "Sin")),
    *((name, {}, {}, IMAGE, 17) for name in ("Ceil", "Cos", "Round", "Identity", "Dropout", "Elu", "Softmax")),
    *((name, _ONE, {}, IMAGE, 17) for name in ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu")),
    *((name, {"c": np.float32(2)}, {}, IMAGE, 17) for name in ("Div", "Pow", "Max", "Min", "Add")),
    ("LeakyRelu", {}, {"alpha": 0.2}, IMAGE, 17),
    ("HardSigmoid", {}, {"alpha": 1 / 6}, IMAGE, 17),
    ("Clip", {}, {"min": -0.5, "max": 0.5}, IMAGE, 9),
    ("Clip", {"low": np.float32(0)}, {}, IMAGE, 17),
    ("LogSoftmax", {}, {"axis": 1}, (5,), 11),
    ("LRN", {}, {"size": 3}, IMAGE, 17),
    ("Conv", {"w": weights(6, 4, 3, 3)}, {"pads": [0, 0, 1, 1], "strides": [2, 2]}, IMAGE, 17),
    ("Conv", {"w": weights(6, 4, 2, 2)}, {"auto_pad": "SAME_LOWER"}, IMAGE, 17),
    ("Conv", {"w": weights(6, 4, 3), "b": weights(6)}, {"dilations": [2], "auto_pad": "VALID"}, (4, 9), 12),
    ("Gemm", {"w": weights(5, 7), "b": weights(7)}, {"alpha": 0.5, "beta": 2.0}, (5,), 17),
    ("MatMul", {"w": weights(6, 2)}, {}, IMAGE, 17),
    ("MatMul", {"w": weights(4, 6, 2)}, {}, IMAGE, 17),
    ("BatchNormalization", {n: np.abs(weights(4)) + 0.1 for n in "sbmv"}, {"epsilon": 1e-3}, IMAGE, 17),
    ("LayerNormalization", {"s": weights(6), "b": weights(6)}, {"axis": -1}, IMAGE, 17),
    ("InstanceNormalization", {"s": weights(4), "b": weights(4)}, {}, IMAGE, 17),
    ("GroupNormalization", {"s": weights(4), "b": weights(4)}, {"num_groups": 2}, IMAGE, 21),
    ("MaxPool", {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, IMAGE, 17),
    ("MaxPool", {}, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, (4, 5, 5), 17),
    ("AveragePool", {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, IMAGE, 17),
    ("AveragePool", {}, {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1], "count_include_pad": 1}, IMAGE, 17),
    ("GlobalAveragePool", {}, {}, (4, 9), 12),
    ("GlobalMaxPool", {}, {}, IMAGE, 17),
    ("ReduceMean", {}, {"axes": [2, 3], "keepdims": 0}, IMAGE, 13),
    ("ReduceMean", {"axes": np.array([-1])}, {}, IMAGE, 18),
    ("ReduceSum", {"axes": np.array([1])}, {}, IMAGE, 17),
    *((name, {}, {"axes": [1, 2]}, IMAGE, 17) for name in ("ReduceMax", "ReduceMin", "ReduceL2")),
    ("Transpose", {}, {"perm": [0, 2, 3, 1]}, IMAGE, 17),
    ("Reshape", {"s": np.array([0, -1, 3])}, {}, IMAGE, 17),
    ("Flatten", {}, {}, IMAGE, 17),
    ("Squeeze", {"axes": np.array([1])}, {}, (1, 5, 5), 17),
    ("Unsqueeze", {}, {"axes": [1]}, (5,), 11),
    ("Slice", {"b": np.array([1]), "e": np.array([2**62]), "a": np.array([1]), "s": np.array([2])}, {}, IMAGE, 17),
    ("Slice", {}, {"starts": [0, -3], "ends": [3, -1], "axes": [1, 2]}, IMAGE, 9),
    ("Gather", {"i": np.array(1)}, {"axis": 1}, IMAGE, 17),
    ("Gather", {"i": np.array([2, 0])}, {"axis": 1}, IMAGE, 17),
    ("Pad", {"p": np.array([0, 0, 1, 1, 0, 0, 2, 0]), "v": np.float32(0.5)}, {}, IMAGE, 17),
    ("Pad", {"p": np.array([0, 0, 1, 1, 0, 0, 2, 0])}, {"mode": "reflect"}, IMAGE, 17),
    ("Cast", {}, {"to": 1}, IMAGE, 17),
    ("Concat", {"c": np.repeat(weights(1, 2, 6, 6), 1, 0)}, {"axis": 1}, IMAGE, 17),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_node_computes_what_onnx_runtime_computes(
    case: tuple[str, Constants, dict[str, Any], tuple[int, ...], int], tmp_path: Path
) -> None:
    operator, constants, attributes, shape, opset = case
    batch = 1 if operator == "Concat" else "n"
    signal = [helper.make_node("Squeeze", ["x"], ["signal"], axes=[1])] if len(shape) == 2 else []
    first = "signal" if signal else "x"  # an array of two axes comes as an image of one channel
    node = helper.make_node(operator, [first, *constants], ["y"], **attributes)
    nodes = [*signal, node, helper.make_node("Flatten", ["y"], ["f"])]
    shape = (1, *shape) if signal else shape
    path = tmp_path / "model.onnx"
    path.write_bytes(made(nodes, constants, [batch, *shape], "f", opset, None).SerializeToString())
    model, came_by = imported(task_of(path, shape))
    assert f"{len(nodes)} of {len(nodes)} nodes as PyTorch" in came_by
    with torch.inference_mode():
        assert model(torch.rand(5, *shape)).shape[0] == 5


@pytest.mark.parametrize("operator", ["Log", "Sqrt", "Reciprocal"])
def test_functions_of_positive_numbers(operator: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node(operator, ["e"], ["y"])]
    path = tmp_path / "model.onnx"
    path.write_bytes(made(nodes, {}, ["n", 5], "y").SerializeToString())
    assert "2 of 2" in imported(task_of(path, (5,)))[1]


@pytest.mark.parametrize("operator", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
def test_values_are_chosen_by_comparisons(operator: str, tmp_path: Path) -> None:
    compared = [helper.make_node(operator, ["x", "half"], ["c"]), helper.make_node("Not", ["c"], ["d"])]
    chosen = [
        helper.make_node("Where", ["d", "x", "half"], ["w"]),
        helper.make_node("Split", ["w"], ["y", "z"], axis=1),
    ]
    nodes = [
        *compared,
        *chosen,
        helper.make_node("MatMul", ["y", "z"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
    ]
    path = tmp_path / "model.onnx"
    path.write_bytes(made(nodes, {"half": np.float32(0.5)}, ["n", 4, 5, 5], "f", 12, None).SerializeToString())
    assert "6 of 6" in imported(task_of(path, (4, 5, 5)))[1]


def test_every_form_is_tried() -> None:
    tried = {case[0] for case in CASES} | {"Log", "Sqrt", "Reciprocal", "Not", "Where", "Split"}
    assert tried | {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"} >= set(FORMS)
    assert len(FORMS) >= 75
