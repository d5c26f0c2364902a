"""ONNX forms of norms, pooling and interpolation, forward and backward, over maps of one or two dimensions."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import fx

from tuner.errors import TunerError
from tuner_onnx_steps.torch.graph import Form, Graph, Value, argument, shape_of
from tuner_onnx_steps.torch.window import Window, sliding, wide

aten = torch.ops.aten


def _batch_norm(graph: Graph, node: fx.Node) -> Value:
    """Of statistics that are given; those that train come as elementwise operators."""
    args: Any = node.args
    value, weight, bias, mean, variance, training, _, eps = args
    if training:
        raise TunerError("a step whose norms train is exported with weighted norms: trace it with padded=True")
    channels = shape_of(value)[1]
    ones, zeros = (graph.constant(np.full(channels, number), "float32") for number in (1, 0))
    affine = [graph.of(own) if own is not None else default for own, default in ((weight, ones), (bias, zeros))]
    return (
        graph.op("BatchNormalization", graph.of(value), *affine, graph.of(mean), graph.of(variance), epsilon=eps),
        None,
        None,
    )


def _batch_norm_backward(graph: Graph, node: fx.Node) -> Value:
    """With x̂ = (x − μ) / σ and μ, σ given: g γ / σ, Σ g x̂ and Σ g."""
    args: Any = node.args
    gradient, value, weight, mean, variance, _, _, training, eps, wanted = args
    if training:
        raise TunerError("a step whose norms train is exported with weighted norms: trace it with padded=True")
    channels, rank = shape_of(value)[1], len(shape_of(value))
    along = (1, channels, *([1] * (rank - 2)))
    axes = [0, *range(2, rank)]
    deviation = graph.op("Sqrt", graph.op("Add", graph.of(variance), graph.of(eps)))
    name = graph.of(gradient)
    of_input = of_weight = of_bias = None
    if wanted[0]:
        scale = graph.op("Div", graph.of(weight if weight is not None else 1.0), deviation)
        of_input = graph.op("Mul", name, graph.reshape(scale, along))
    if wanted[1]:
        centred = graph.op("Sub", graph.of(value), graph.reshape(graph.of(mean), along))
        of_weight = graph.op("Div", graph.sum(graph.op("Mul", name, centred), axes), deviation)
    if wanted[2]:
        of_bias = graph.sum(name, axes)
    return of_input, of_weight, of_bias


def _layer_norm(graph: Graph, node: fx.Node) -> Value:
    """The result, the mean and the inverse deviation."""
    args: Any = node.args
    value, shape, weight, bias, eps = args
    affine = [graph.of(weight) if weight is not None else graph.constant(np.ones(shape), "float32")]
    affine += [graph.of(bias)] if bias is not None else []
    return graph.ops("LayerNormalization", 3, graph.of(value), *affine, axis=-len(shape), epsilon=eps)


def _group_norm(graph: Graph, node: fx.Node) -> Value:
    """The result, the mean and the inverse deviation, both [n, groups]."""
    args: Any = node.args
    value, weight, bias, samples, channels, places, groups, eps = args
    lined = graph.reshape(graph.of(value), (samples, groups, channels * places // groups))
    axis = graph.integers([2])
    mean = graph.op("ReduceMean", lined, axis, keepdims=1)
    centred = graph.op("Sub", lined, mean)
    variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), axis, keepdims=1)
    scale = graph.op("Reciprocal", graph.op("Sqrt", graph.op("Add", variance, graph.of(eps))))
    result = graph.reshape(graph.op("Mul", centred, scale), shape_of(value))
    along = (1, channels, *(1 for _ in shape_of(value)[2:]))
    if weight is not None:
        result = graph.op("Mul", result, graph.reshape(graph.of(weight), along))
    if bias is not None:
        result = graph.op("Add", result, graph.reshape(graph.of(bias), along))
    return result, *(graph.reshape(statistic, (samples, groups)) for statistic in (mean, scale))


def _pool_window(node: fx.Node, first: int, *, dilated: bool) -> Window:
    kernel = wide(node.args[first], 2, 1)
    stride, padding = argument(node, first + 1, "stride") or kernel, argument(node, first + 2, "padding")
    return sliding(kernel, stride, padding, argument(node, first + 3, "dilation") if dilated else None)


def _max_pool(graph: Graph, node: fx.Node) -> Value:
    """Maxima and where they are in the whole tensor, as ONNX counts."""
    window = _pool_window(node, 1, dilated=True)
    value: Any = node.args[0]
    attributes, reached = window.attributes(), window.reached(node.meta["val"][0].shape[2:])
    slides = zip(window.padding, reached, shape_of(value)[2:], strict=True)
    ends = [padding + max(0, needs - size) for padding, needs, size in slides]
    if all(end < kernel for end, kernel in zip(ends, window.kernel, strict=True)):
        attributes["pads"] = (*window.padding, *ends)
    else:
        attributes["ceil_mode"] = 1  # which ONNX Runtime 1.20 counts otherwise
    return graph.ops("MaxPool", 2, graph.of(value), **attributes)


def _max_pool_backward(graph: Graph, node: fx.Node) -> Value:
    return _unpooled(graph, node, graph.of(node.args[0]))


def _unpooled(graph: Graph, node: fx.Node, gradient: str) -> str:
    """Return every gradient at the place of its maximum; added up where windows overlap."""
    where = graph.of(node.args[-1])
    shape, window = shape_of(node), _pool_window(node, 2, dilated=True)
    outputs = shape_of(node.args[-1])[2:]  # type: ignore[arg-type]  # a node
    slides = zip(outputs, shape[2:], window.stride, window.kernel, window.dilation, strict=True)
    if all(d * (k - 1) < s and (count - 1) * s + k <= size for count, size, s, k, d in slides):  # what it asks for
        return graph.op(
            "MaxUnpool", gradient, where, graph.integers(shape), kernel_shape=window.kernel, strides=window.stride
        )
    flat = graph.integers([-1])
    zeros = graph.op("Expand", graph.of(0.0), graph.integers([prod(shape)]))
    operands = zeros, graph.op("Reshape", where, flat), graph.op("Reshape", gradient, flat)
    return graph.reshape(graph.op("ScatterElements", *operands, reduction="add"), shape)


def _threshold_backward(graph: Graph, node: fx.Node) -> Value:
    """Of what was pooled afterwards, a maximum is over the threshold where it was: fewer places are asked."""
    gradient, value, threshold = node.args
    pooled: Any = gradient
    if pooled.target == aten.max_pool2d_with_indices_backward.default and pooled.args[1] is value:
        pool: Any = pooled.args[-1].args[0]
        maxima: Any = graph.values[pool]
        over = graph.op("Greater", maxima[0], graph.of(threshold))
        return _unpooled(graph, pooled, graph.masked(graph.of(pooled.args[0]), over))
    return graph.masked(graph.of(gradient), graph.op("Greater", graph.of(value), graph.of(threshold)))


def _shares(inputs: int, window: tuple[int, int, int], outputs: int, *, padded: bool) -> np.ndarray[Any, Any]:
    """Return [outputs, inputs]: how much of each input is in each average along one axis."""
    kernel, stride, padding = window
    shares = np.zeros((outputs, inputs), np.float32)
    for index in range(outputs):
        begin, end = index * stride - padding, min(index * stride - padding + kernel, inputs + padding)
        inside = slice(max(begin, 0), min(end, inputs))
        shares[index, inside] = 1 / (end - begin if padded else inside.stop - inside.start)
    return shares


def _separable(graph: Graph, name: str, rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> str:
    """Return R x Cᵀ of every map."""
    left = graph.op("MatMul", graph.constant(rows, "float32"), name)
    return graph.op("MatMul", left, graph.constant(columns.T, "float32"))


def _average_matrices(node: fx.Node, inputs: Sequence[int], outputs: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """Return the matrices of an average pooling, fixed or adaptive, along both axes."""
    if node.target in {aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default}:  # noqa: SLF001 - the operators' names
        matrices = []
        for size, count in zip(inputs, outputs, strict=True):
            bounds = [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]
            places = np.arange(size)
            matrices.append(np.stack([((places >= b) & (places < e)).astype(np.float32) / (e - b) for b, e in bounds]))
        return matrices
    first = 1 if node.target == aten.avg_pool2d.default else 2
    window = _pool_window(node, first, dilated=False)
    padded = argument(node, first + 4, "count_include_pad", default=True)
    if argument(node, first + 5, "divisor_override") is not None:
        raise TunerError(
            "a step with average pooling and divisor_override has no ONNX form: train it with --backend torch"
        )
    slides = zip(inputs, window.kernel, window.stride, window.padding, outputs, strict=True)
    return [_shares(size, (k, s, p), count, padded=padded) for size, k, s, p, count in slides]


def _average_pool(graph: Graph, node: fx.Node) -> Value:
    """Average pooling, separable along its axes, as two matrix products."""
    value: Any = node.args[0]
    rows, columns = _average_matrices(node, shape_of(value)[2:], shape_of(node)[2:])
    return _separable(graph, graph.of(value), rows, columns)


def _average_pool_backward(graph: Graph, node: fx.Node) -> Value:
    gradient: Any = node.args[0]
    rows, columns = _average_matrices(node, shape_of(node)[2:], shape_of(gradient)[2:])
    return _separable(graph, graph.of(gradient), rows.T, columns.T)


def _between(inputs: int, outputs: int, scale: float | None, *, corners: bool) -> np.ndarray[Any, Any]:
    """Return [outputs, inputs]: how much of each input is in each linearly interpolated output along one axis."""
    if corners:
        at = np.arange(outputs) * ((inputs - 1) / max(1, outputs - 1))
    else:
        at = np.maximum((np.arange(outputs) + 0.5) * (1 / scale if scale else inputs / outputs) - 0.5, 0)
    low = np.minimum(at.astype(np.int64), inputs - 1)
    part, high = np.where(low < inputs - 1, at - low, 0), np.minimum(low + 1, inputs - 1)
    shares = np.eye(inputs)
    return np.asarray((1 - part)[:, None] * shares[low] + part[:, None] * shares[high], np.float32)


def _interpolated(graph: Graph, node: fx.Node) -> Value:
    """Bilinear interpolation, separable along the axes, as two matrix products."""
    args: Any = node.args
    value, size, corners, *scales = args
    scales = scales or [None, None]
    axes = zip(shape_of(value)[2:], size, scales, strict=True)
    rows, columns = (_between(*axis, corners=corners) for axis in axes)
    return _separable(graph, graph.of(value), rows, columns)


def _interpolated_backward(graph: Graph, node: fx.Node) -> Value:
    args: Any = node.args
    gradient, size, inputs, corners, *scales = args
    scales = scales or [None, None]
    rows, columns = (_between(*axis, corners=corners).T for axis in zip(inputs[2:], size, scales, strict=True))
    return _separable(graph, graph.of(gradient), rows, columns)


FORMS: Mapping[Any, Form] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    aten.threshold_backward.default: _threshold_backward,
    aten.avg_pool2d.default: _average_pool,
    aten.avg_pool2d_backward.default: _average_pool_backward,
    aten.upsample_bilinear2d.default: _interpolated,
    aten.upsample_bilinear2d_backward.default: _interpolated_backward,
    aten._adaptive_avg_pool2d.default: _average_pool,  # noqa: SLF001 - the operator's name
    aten._adaptive_avg_pool2d_backward.default: _average_pool_backward,  # noqa: SLF001 - the operator's name
}
