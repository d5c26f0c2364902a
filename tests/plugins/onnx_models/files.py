"""Small ONNX files made node by node, as exporters of several years write them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tuner.task import ArraySamples, Domain, InputSpec, ModelSpec, Task

LABELS = ("a", "b", "c", "d")
Constants = Mapping[str, Any]


def made(
    nodes: Sequence[NodeProto],
    constants: Constants,
    shape: Sequence[int | str],
    output: str = "logits",
    opset: int = 17,
    declared: Sequence[int | str] | None = ("n", 3),
) -> ModelProto:
    """Return a model of one input ``x``."""
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, declared)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model


def weights(*shape: int) -> Any:
    """Return small random weights."""
    return np.random.default_rng(sum(shape)).normal(0, 0.3, shape).astype(np.float32)


def network(
    middle: Sequence[NodeProto] = (), more: Constants = MappingProxyType({}), batch: int | str = "n", size: int = 8
) -> ModelProto:
    """Return a small classifier of 3 × 8 × 8 maps; ``middle`` makes ``m`` of ``r1``, [n, 8, 4, 4]."""
    own = helper.make_node
    nodes = [
        own("Conv", ["x", "stem.0.weight"], ["c1"], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        own("BatchNormalization", ["c1", "s", "b", "mean", "var"], ["n1"]),
        own("Relu", ["n1"], ["r1"]),
        *(middle or [own("Identity", ["r1"], ["m"])]),
        own("Conv", ["m", "body.weight", "body.bias"], ["c2"], name="body", pads=[1, 1, 1, 1], group=2),
        own("Clip", ["c2", "zero", "six"], ["r2"]),
        own("Add", ["r2", "m"], ["a"]),
        own("Conv", ["a", "last.weight"], ["c3"], name="/last/Conv"),
        own("GlobalAveragePool", ["c3"], ["p"]),
        own("Shape", ["p"], ["shape"]),
        own("Gather", ["shape", "first"], ["count"]),
        own("Concat", ["count", "rest"], ["flat"], axis=0),
        own("Reshape", ["p", "flat"], ["f"]),
        own("MatMul", ["f", "head"], ["h"]),
        own("Add", ["h", "bias"], ["scores"]),
        own("Softmax", ["scores"], ["logits"], axis=1),
    ]
    constants = {
        "stem.0.weight": weights(8, 3, 3, 3), "s": np.abs(weights(8)) + 0.5, "b": weights(8), "mean": weights(8),
        "var": np.abs(weights(8)) + 0.5, "body.weight": weights(8, 4, 3, 3), "body.bias": weights(8),
        "zero": np.float32(0), "six": np.float32(6), "last.weight": weights(16, 8, 1, 1), "first": np.array([0]),
        "rest": np.array([-1]), "head": weights(16, 3), "bias": weights(3), **more,
    }  # fmt: skip
    return made(nodes, constants, [batch, 3, size, size], declared=[batch, 3])


def task_of(path: Path, shape: Sequence[int] = (3, 8, 8), known: int = 3, **spec: Any) -> Task:
    """Return a task of noise whose model is a file."""
    noise = np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32)
    samples, rows = ArraySamples(noise, np.arange(8) % 4, InputSpec("arrays")), (0, 1, 2, 3)
    domain, model = Domain(samples, samples), ModelSpec(f"onnx:{path}", **spec)
    return Task("t", model, InputSpec("arrays"), "single-label", domain, None, LABELS, rows[:known], rows)
