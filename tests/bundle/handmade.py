"""Bundles made by hand: small linear models whose answers follow from their input."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tuner.bundle.format import FILE, MODEL, file_hash
from tuner.bundle.info import FORMAT

LABELS = ("a", "b", "c")


def model(path: Path, weights: npt.NDArray[np.float64], *, carries: bool) -> None:
    """Write logits = input @ weights, with the input carried on as features."""
    size = len(weights)
    rows = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", size])
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", weights.shape[1]])]
    nodes = [helper.make_node("MatMul", ["input", "w"], ["logits"])]
    if carries:
        outputs.insert(0, helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", size]))
        nodes.append(helper.make_node("Identity", ["input"], ["features"]))
    constants = [numpy_helper.from_array(weights.astype(np.float32), "w")]
    graph = helper.make_graph(nodes, "segment", [rows], outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, path)


def write_bundle(
    folder: Path,
    weights: Sequence[npt.NDArray[np.float64]],
    thresholds: Sequence[float] = (),
    labels: Sequence[str] = LABELS,
    **changes: Any,
) -> Path:
    """Write a bundle of one segment for each matrix of weights [inputs, labels]."""
    folder.mkdir(parents=True)
    chain = len(weights) > 1
    names = [f"segments/{index}.onnx" for index in range(len(weights))] if chain else [MODEL]
    for index, (name, matrix) in enumerate(zip(names, weights, strict=True)):
        model(folder / name, matrix, carries=index < len(weights) - 1)
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": "hand-made",
        "labels": list(labels),
        "input": {"kind": "arrays", "size": None, "resize": None, "mean": [], "std": []},
        "input_shape": [len(weights[0])],
        "loss": "single-label",
        "files": {name: file_hash(folder / name) for name in names},
    }
    if chain:
        shares = [(index + 1) / len(weights) for index in range(len(weights))]
        content["exits"] = {
            "segments": names,
            "shares": shares,
            "thresholds": list(thresholds),
            "temperatures": [1.0] * len(weights),
            "tolerance": 0.01,
        }
    (folder / FILE).write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return folder


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a bundle under a name: `make("one", [weights, ...], thresholds)`."""
    return lambda name, *arguments, **changes: write_bundle(tmp_path / name, *arguments, **changes)


@pytest.fixture
def pointing() -> Callable[..., npt.NDArray[np.float64]]:
    """Return a function that makes weights [3, 3]: the answer is the input's largest place, `scale` sure of it.

    With an `order`, places answer to another label each.
    """

    def weights(scale: float, order: Sequence[int] = (0, 1, 2)) -> npt.NDArray[np.float64]:
        return scale * np.eye(3)[list(order)]

    return weights


@pytest.fixture
def sample() -> Callable[..., npt.NDArray[np.float32]]:
    """Return a function that makes an input [3] for a label; `number` makes it another of the same meaning."""

    def input_of(label: int, number: int = 0, strength: float = 1.0) -> npt.NDArray[np.float32]:
        values = np.zeros(3, np.float32)
        values[label] = strength + 1e-5 * number
        return values

    return input_of
