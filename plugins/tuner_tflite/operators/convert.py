"""The table of operators, and those that are elementwise, reduce, move or cut values."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tuner_tflite.graph import Graph, Node, refused
from tuner_tflite.layout import Values, channels_last, plain
from tuner_tflite.operators.images import conv, conv_transpose, pool, resize
from tuner_tflite.operators.matrices import gemm, matmul
from tuner_tflite.operators.norms import batch_norm, norm
from tuner_tflite.operators.steps import cast, gather_elements, logical, one_hot, where

#: Largest rank of a tensor that is transposed or broadcast.
MOST_AXES = 6
_HALF, _SIX = 0.5, 6.0


def _unary(kind: str, values: Values, node: Node) -> None:
    layout = values.layout(node.inputs[0])
    tensor = values.stored(node.inputs[0])
    out = values.model.add(kind, (tensor,), values.model.tensors[tensor].shape, node.outputs[0])
    values.put(node.outputs[0], out, layout)


def _chain(kind: str, values: Values, node: Node) -> None:
    """Write an operator of two values, or of more from left to right, which are broadcast."""
    tensors, layout = values.aligned(node.inputs, node.outputs[0])
    shape = [values.shape(node.outputs[0])[axis] for axis in layout]
    total = tensors[0]
    for tensor in tensors[1:]:
        total = values.model.add(kind, (total, tensor), shape, node.outputs[0])
    values.put(node.outputs[0], total, layout)


def _alias(values: Values, node: Node) -> None:
    values.put(node.outputs[0], values.stored(node.inputs[0]), values.layout(node.inputs[0]))


def _scalar(values: Values, value: float) -> int:
    return values.model.constant(np.array([value], np.float32))


def _clip(values: Values, node: Node) -> None:
    limits = [values.constant(name) if name else None for name in (*node.inputs[1:3], "", "")[:2]]
    low, high = (None if limit is None else float(limit) for limit in limits)
    known: dict[tuple[float | None, float | None], str] = {
        (0.0, 6.0): "RELU6",
        (0.0, None): "RELU",
        (-1.0, 1.0): "RELU_N1_TO_1",
    }
    single = Node("", node.inputs[:1], node.outputs)
    if (kind := known.get((low, high))) is not None:
        return _unary(kind, values, single)
    tensor, layout = values.stored(node.inputs[0]), values.layout(node.inputs[0])
    shape = values.model.tensors[tensor].shape
    for kind, limit in (("MAXIMUM", low), ("MINIMUM", high)):
        if limit is not None:
            tensor = values.model.add(kind, (tensor, _scalar(values, limit)), shape, node.outputs[0])
    return values.put(node.outputs[0], tensor, layout)


def _hard_sigmoid(values: Values, node: Node) -> None:
    slope, at_zero = node.attributes.get("alpha", 0.2), node.attributes.get("beta", _HALF)
    tensor, layout, model = values.stored(node.inputs[0]), values.layout(node.inputs[0]), values.model
    shape = model.tensors[tensor].shape
    if abs(6 * slope - 1) > 1e-4:  # noqa: PLR2004 - PyTorch's is a sixth
        tensor = model.add("MUL", (tensor, _scalar(values, _SIX * slope)), shape)
    tensor = model.add("ADD", (tensor, _scalar(values, _SIX * at_zero)), shape)
    tensor = model.add("RELU6", (tensor,), shape)
    values.put(node.outputs[0], model.add("MUL", (tensor, _scalar(values, 1 / _SIX)), shape, node.outputs[0]), layout)


def _leaky(values: Values, node: Node) -> None:
    tensor, layout = values.stored(node.inputs[0]), values.layout(node.inputs[0])
    options: dict[str, Any] = {"alpha": float(node.attributes.get("alpha", 0.01))}
    out = values.model.add("LEAKY_RELU", (tensor,), values.model.tensors[tensor].shape, node.outputs[0], **options)
    values.put(node.outputs[0], out, layout)


def _gelu(values: Values, node: Node) -> None:
    tensor, layout = values.stored(node.inputs[0]), values.layout(node.inputs[0])
    options = {"approximate": node.attributes.get("approximate", "none") == "tanh"}
    out = values.model.add("GELU", (tensor,), values.model.tensors[tensor].shape, node.outputs[0], **options)
    values.put(node.outputs[0], out, layout)


def _power(values: Values, node: Node) -> None:
    exponent = values.constant(node.inputs[1])
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == _HALF:
        return _unary("SQRT", values, Node("", node.inputs[:1], node.outputs))
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(())) == 2:  # noqa: PLR2004
        return _chain("MUL", values, Node("", node.inputs[:1] * 2, node.outputs))
    return _chain("POW", values, node)


def _reciprocal(values: Values, node: Node) -> None:
    tensor, layout = values.stored(node.inputs[0]), values.layout(node.inputs[0])
    shape = values.model.tensors[tensor].shape
    values.put(node.outputs[0], values.model.add("DIV", (_scalar(values, 1.0), tensor), shape), layout)


def _reduce(kind: str, values: Values, node: Node) -> None:
    shape, layout = values.shape(node.inputs[0]), values.layout(node.inputs[0])
    given = node.attributes.get("axes")
    if given is None and len(node.inputs) > 1 and node.inputs[1]:
        found = values.constant(node.inputs[1])
        given = None if found is None else found.tolist()
    if node.kind == "GlobalAveragePool":
        given = range(2, len(shape))
    axes = sorted(axis % len(shape) for axis in (given if given is not None else plain(len(shape))))
    keeps = bool(node.attributes.get("keepdims", 1))
    tensor, model = values.stored(node.inputs[0]), values.model
    if node.kind == "ReduceL2":
        tensor = model.add("MUL", (tensor, tensor), model.tensors[tensor].shape, exact=True)
    places = values.whole_numbers([layout.index(axis) for axis in axes])
    left = [axis for axis in layout if axis not in axes]
    sizes = [shape[axis] for axis in left]
    if keeps:
        sizes = [1 if axis in axes else shape[axis] for axis in layout]
    is_norm = node.kind == "ReduceL2"
    out = model.add(kind, (tensor, places), sizes, node.outputs[0], exact=is_norm, keepDims=keeps)
    if is_norm:
        out = model.add("SQRT", (out,), sizes, node.outputs[0], exact=True)
    values.put(node.outputs[0], out, layout if keeps else tuple(sorted(left).index(axis) for axis in left))


def _softmax(kind: str, values: Values, node: Node) -> None:
    rank = len(values.shape(node.inputs[0]))
    axis = node.attributes.get("axis", -1) % rank
    layout = (*(other for other in plain(rank) if other != axis), axis)
    tensor = values.get(node.inputs[0], layout)
    shape = values.model.tensors[tensor].shape
    options: dict[str, Any] = {"beta": 1.0} if kind == "SOFTMAX" else {}
    values.put(node.outputs[0], values.model.add(kind, (tensor,), shape, node.outputs[0], **options), layout)


def _reshape(values: Values, node: Node) -> None:
    values.put(node.outputs[0], values.reshaped(values.get(node.inputs[0]), values.shape(node.outputs[0])))


def _transpose(values: Values, node: Node) -> None:
    rank = len(values.shape(node.inputs[0]))
    if rank > MOST_AXES:
        raise refused(f"Transpose of {rank} axes")
    axes = list(node.attributes.get("perm", range(rank)[::-1]))
    layout = values.layout(node.inputs[0])
    values.put(node.outputs[0], values.stored(node.inputs[0]), tuple(axes.index(axis) for axis in layout))


def _concat(values: Values, node: Node) -> None:
    shape = values.shape(node.outputs[0])
    axis = node.attributes["axis"] % len(shape)
    layouts = [values.layout(name) for name in node.inputs if values.constant(name) is None]
    layout = layouts[0]
    tensors = [values.get(name, layout) for name in node.inputs]
    sizes = [shape[one] for one in layout]
    out = values.model.add("CONCATENATION", tensors, sizes, node.outputs[0], axis=layout.index(axis))
    values.put(node.outputs[0], out, layout)


def _cut(values: Values, name: str, output: str, begins: list[int], ends: list[int], steps: list[int]) -> None:
    """Write the part of a value between positions of each axis, in ONNX's order."""
    layout, tensor = values.layout(name), values.stored(name)
    parts = [values.whole_numbers([own[axis] for axis in layout]) for own in (begins, ends, steps)]
    shape = [values.shape(output)[axis] for axis in layout]
    values.put(output, values.model.add("STRIDED_SLICE", (tensor, *parts), shape, output), layout)


def _slice(values: Values, node: Node) -> None:
    shape = values.shape(node.inputs[0])
    given = [values.constant(name) if name else None for name in (*node.inputs[1:], "", "", "", "")[:4]]
    if given[0] is None or given[1] is None:
        raise refused("Slice at computed positions")
    starts, stops = given[0].tolist(), given[1].tolist()
    axes = list(range(len(starts))) if given[2] is None else given[2].tolist()
    strides = [1] * len(starts) if given[3] is None else given[3].tolist()
    begins, ends, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, start, stop, stride in zip(axes, starts, stops, strides, strict=True):
        begins[axis], end, steps[axis] = slice(start, stop, stride).indices(shape[axis])
        ends[axis] = end if end >= 0 else end - shape[axis]  # before the first, where -1 would be the last
    _cut(values, node.inputs[0], node.outputs[0], begins, ends, steps)


def _split(values: Values, node: Node) -> None:
    shape = values.shape(node.inputs[0])
    axis, at = node.attributes.get("axis", 0) % len(shape), 0
    for output in node.outputs:
        begins, ends = [0] * len(shape), list(shape)
        begins[axis], ends[axis] = at, at + values.shape(output)[axis]
        _cut(values, node.inputs[0], output, begins, ends, [1] * len(shape))
        at = ends[axis]


def _gather(values: Values, node: Node) -> None:
    indices = values.constant(node.inputs[1])
    if indices is None:
        raise refused("Gather at computed positions")
    shape = values.shape(node.inputs[0])
    axis = node.attributes.get("axis", 0) % len(shape)
    places = values.model.constant((indices % shape[axis]).astype(np.int32), "places")
    out = values.shape(node.outputs[0])
    tensors = (values.get(node.inputs[0]), places)
    values.put(node.outputs[0], values.model.add("GATHER", tensors, out, node.outputs[0], axis=axis))


def _pad(values: Values, node: Node) -> None:
    edges, mode = values.constant(node.inputs[1]), str(node.attributes.get("mode", "constant"))
    if edges is None or len(node.inputs) > 3 or mode not in ("constant", "reflect"):  # noqa: PLR2004
        raise refused(f"Pad ({mode})")
    given = values.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None  # noqa: PLR2004
    value = 0.0 if given is None else float(given)
    tensor, layout, model = values.stored(node.inputs[0]), values.layout(node.inputs[0]), values.model
    both = edges.reshape(2, -1).T[list(layout)].astype(np.int32)
    if (both < 0).any():
        raise refused("Pad by less than nothing")
    inputs = (tensor, model.constant(both, "edges"))
    shape = [values.shape(node.outputs[0])[axis] for axis in layout]
    if mode == "reflect":
        out = model.add("MIRROR_PAD", inputs, shape, node.outputs[0], mode=0)
    elif value == 0:
        out = model.add("PAD", inputs, shape, node.outputs[0])
    else:
        out = model.add("PADV2", (*inputs, model.constant(np.array(value, np.float32))), shape, node.outputs[0])
    values.put(node.outputs[0], out, layout)


def _where(values: Values, node: Node) -> None:
    """Write a choice between two values; where the condition is the same everywhere, the value that it takes."""
    condition = values.constant(node.inputs[0])
    if condition is None or condition.min() != condition.max():
        return where(values, node)
    chosen = node.inputs[1 if condition.flat[0] else 2]
    if values.shape(chosen) == values.shape(node.outputs[0]):
        return _alias(values, Node("", (chosen,), node.outputs))
    return _expand(values, Node("", (chosen,), node.outputs))


def _expand(values: Values, node: Node) -> None:
    out = values.shape(node.outputs[0])
    tensors, layout = values.aligned(node.inputs[:1], node.outputs[0])
    sizes = [out[axis] for axis in layout]
    inputs = (tensors[0], values.whole_numbers(sizes))
    values.put(node.outputs[0], values.model.add("BROADCAST_TO", inputs, sizes, node.outputs[0]), layout)


#: What writes a node, by the operator's name.
CONVERTERS: Mapping[str, Callable[[Values, Node], None]] = {
    "Conv": conv, "ConvTranspose": conv_transpose, "AveragePool": pool, "MaxPool": pool, "Resize": resize,
    "Clip": _clip, "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky, "Gelu": _gelu, "Pow": _power, "Reciprocal": _reciprocal,
    "Softmax": partial(_softmax, "SOFTMAX"), "LogSoftmax": partial(_softmax, "LOG_SOFTMAX"),
    "Reshape": _reshape, "Flatten": _reshape, "Squeeze": _reshape, "Unsqueeze": _reshape, "Transpose": _transpose,
    "Gemm": gemm, "MatMul": matmul, "Concat": _concat, "Slice": _slice, "Split": _split, "Gather": _gather,
    "Pad": _pad, "Expand": _expand, "BatchNormalization": batch_norm, "LayerNormalization": norm,
    "InstanceNormalization": norm, "Identity": _alias, "Dropout": _alias, "Cast": cast, "Where": _where,
    "OneHot": one_hot, "GatherElements": gather_elements, "Not": partial(logical, "LOGICAL_NOT"),
    **{
        name: partial(_unary, kind)
        for name, kind in {
            "Relu": "RELU", "Sigmoid": "LOGISTIC", "Tanh": "TANH", "HardSwish": "HARD_SWISH", "Sqrt": "SQRT",
            "Exp": "EXP", "Log": "LOG", "Abs": "ABS", "Neg": "NEG", "Floor": "FLOOR", "Elu": "ELU",
        }.items()
    },
    **{
        name: partial(_chain, kind)
        for name, kind in {
            "Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV", "Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD",
        }.items()
    },
    **{
        name: partial(logical, kind)
        for name, kind in {
            "Greater": "GREATER", "GreaterOrEqual": "GREATER_EQUAL", "Less": "LESS", "LessOrEqual": "LESS_EQUAL",
            "Equal": "EQUAL", "And": "LOGICAL_AND", "Or": "LOGICAL_OR",
        }.items()
    },
    **{
        name: partial(_reduce, kind)
        for name, kind in {
            "GlobalAveragePool": "MEAN", "ReduceMean": "MEAN", "ReduceSum": "SUM", "ReduceMax": "REDUCE_MAX",
            "ReduceL2": "SUM",
        }.items()
    },
}  # fmt: skip


def convert(graph: Graph, values: Values) -> None:
    """Write all nodes of a graph, whose input has a tensor.

    Raises:
        BundleError: An operator has no converter, or not with these settings.
    """
    if missing := sorted({node.kind for node in graph.nodes} - set(CONVERTERS)):
        raise refused(", ".join(missing))
    for node in graph.nodes:
        CONVERTERS[node.kind](values, node)


def put_input(values: Values, name: str, tensor: int, *, image: bool) -> None:
    """Say which tensor the graph's input is; that of an image has its channels last."""
    rank = len(values.shape(name))
    values.put(name, tensor, channels_last(rank) if image else plain(rank))
