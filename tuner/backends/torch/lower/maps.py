"""ONNX forms of convolutions, norms and pooling, forward and backward, over maps of one or two dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
from torch import fx

from tuner.backends.torch.lower import depthwise
from tuner.backends.torch.lower.graph import Form, Graph, Value, argument, shape_of
from tuner.errors import TunerError

aten = torch.ops.aten
FEW = 16  # channels, below which a product of one shift, or of a kernel turned round, is too narrow to be fast


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution or pooling slides.

    Attributes:
        kernel: Extent by axis, likewise the others.
        stride: Between outputs.
        padding: On both sides.
        dilation: Between elements of the kernel.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def pointwise(self) -> bool:
        """Whether every output comes from the one input at its place."""
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def trailing(self, lead: int) -> "Window":
        """Return how it slides along all axes but the first `lead`."""
        return Window(self.kernel[lead:], self.stride[lead:], self.padding[lead:], self.dilation[lead:])

    def attributes(self) -> dict[str, Any]:
        """Return what ONNX calls these."""
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": (*self.padding, *self.padding),
            "dilations": self.dilation,
        }


def _wide(values: Any, axes: int, default: int) -> tuple[int, ...]:
    given = list(values) if values else [default]
    return tuple(int(value) for value in (given * axes if len(given) == 1 else given))


def _window(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Window:
    axes = len(kernel)
    return Window(tuple(kernel), _wide(stride, axes, 1), _wide(padding, axes, 0), _wide(dilation, axes, 1))


def slid(convolution: fx.Node) -> Window:
    """Return how a traced convolution slides.

    Raises:
        TunerError: It is a transposed one.
    """
    args: Any = convolution.args
    _, weight, _, stride, padding, dilation, transposed, *_ = args
    if transposed:
        raise TunerError("a step with a transposed convolution has no ONNX form: train it with --backend torch")
    return _window(shape_of(weight)[2:], stride, padding, dilation)


def _convolution(graph: Graph, node: fx.Node) -> Value:
    weight, bias = node.args[1:3]
    return convolved(graph, node, graph.of(weight), None if bias is None else graph.of(bias))


def convolved(graph: Graph, node: fx.Node, kernel: str, bias: str | None) -> str:
    """Return the result of a traced convolution with another kernel and bias of the same shapes."""
    args: Any = node.args
    value, weight, *_, groups = args
    window, given = slid(node), graph.of(value)
    shapes = shape_of(value), shape_of(node)
    if _depthwise(weight, groups) and depthwise.pays(shapes[0][0], shapes[0][2:], shapes[1][2:]):
        return depthwise.convolved(graph, given, kernel, bias, window, shapes)
    return graph.op("Conv", given, kernel, *([] if bias is None else [bias]), group=groups, **window.attributes())


def _depthwise(weight: fx.Node, groups: int) -> bool:
    outputs, inputs = shape_of(weight)[:2]
    return inputs == 1 and outputs == groups


def _convolution_backward(graph: Graph, node: fx.Node) -> Value:
    """Gradients of the input, the weight and the bias of y = w ∗ x + b, those that are asked for."""
    args: Any = node.args
    gradient, value, weight, _, stride, padding, dilation, _, _, groups, wanted = args
    window = _window(shape_of(weight)[2:], stride, padding, dilation)
    of_input = None
    if wanted[0]:
        of_input = input_gradient(graph, gradient, value, weight, graph.of(weight), window, groups)
    of_weight = weight_gradient(graph, gradient, value, weight, window, groups) if wanted[1] else None
    axes = [0, *range(2, len(shape_of(gradient)))]
    of_bias = graph.sum(graph.of(gradient), axes) if wanted[2] else None
    return of_input, of_weight, of_bias


def input_gradient(
    graph: Graph, gradient: fx.Node, value: fx.Node, weight: fx.Node, kernel: str, window: Window, groups: int
) -> str:
    """Return the gradient convolved with the kernel turned round.

    Args:
        graph: To add to.
        gradient: Of the convolution's result.
        value: The convolution's input.
        weight: Of the shape that `kernel` has.
        kernel: Name of what was slid.
        window: How.
        groups: Of channels.
    """
    outputs, inputs = shape_of(weight)[:2]
    shape, result = shape_of(value), shape_of(gradient)
    name = graph.of(gradient)
    single = _depthwise(weight, groups)
    if single and depthwise.pays(shape[0], shape[2:], result[2:]):
        return depthwise.input_gradient(graph, name, kernel, window, (shape, result))
    if groups == 1 and inputs < FEW and not window.pointwise:
        lined = graph.reshape(kernel, (outputs, inputs * prod(window.kernel)))
        columns = graph.op("MatMul", graph.op("Transpose", lined, perm=(1, 0)), graph.reshape(name, (*result[:2], -1)))
        given = window.attributes()
        sizes = graph.integers(shape[2:]), graph.integers(given.pop("kernel_shape"))
        return graph.op("Col2Im", columns, *sizes, **given)
    over = tuple(d * (k - 1) - p for d, k, p in zip(window.dilation, window.kernel, window.padding, strict=True))
    if set(window.stride) == {1} and min(over) >= 0 and (groups == 1 or single):
        axes = range(2, 2 + len(window.kernel))
        ends = [graph.integers([one] * len(axes)) for one in (-1, -(2**31))]
        steps = graph.integers(axes), graph.integers([-1] * len(axes))
        turned = kernel if set(window.kernel) == {1} else graph.op("Slice", kernel, *ends, *steps)
        if groups == 1:
            turned = graph.op("Transpose", turned, perm=(1, 0, *axes))
        window = Window(window.kernel, window.stride, over, window.dilation)
        return graph.op("Conv", name, turned, group=groups, **window.attributes())
    reached = [
        (size - 1) * s - 2 * p + d * (k - 1) + 1
        for size, s, p, d, k in zip(
            result[2:], window.stride, window.padding, window.dilation, window.kernel, strict=True
        )
    ]
    missing = [size - end for size, end in zip(shape[2:], reached, strict=True)]
    return graph.op("ConvTranspose", name, kernel, group=groups, output_padding=missing, **window.attributes())


def weight_gradient(
    graph: Graph, gradient: fx.Node, value: fx.Node, weight: fx.Node, window: Window, groups: int
) -> str:
    """Return products of the gradient with the input, shifted by each element of the kernel.

    Of few channels, and of a depthwise convolution of long rows, all shifts are one convolution of the input by the
    gradient, samples as channels; of many, each shift is a matrix product.
    """
    outputs, inputs = shape_of(weight)[:2]
    single = _depthwise(weight, groups)
    if single:
        shapes = shape_of(value), shape_of(gradient)
        summed = depthwise.weight_gradient(graph, graph.of(gradient), graph.of(value), window, shapes)
        if summed is not None:
            return graph.reshape(summed, shape_of(weight))
    axes = tuple(range(2, 2 + len(window.kernel)))
    across = graph.op("Transpose", graph.of(gradient), perm=(1, 0, *axes))
    maps = graph.op("Transpose", graph.of(value), perm=(1, 0, *axes))
    samples, _, *size = shape_of(gradient)
    if single or (groups == 1 and inputs < FEW and not window.pointwise):
        lined = graph.reshape(maps, (1, groups * samples, *shape_of(value)[2:])) if single else maps
        turned = Window(tuple(size), window.dilation, window.padding, window.stride)
        found = graph.op("Conv", lined, across, group=groups, **turned.attributes())
        ends = [graph.integers(one) for one in ([0] * len(axes), window.kernel, axes)]
        found = graph.op("Slice", found, *ends)
        return graph.reshape(found, shape_of(weight)) if single else graph.op("Transpose", found, perm=(1, 0, *axes))
    if any(window.padding):
        maps = graph.op("Pad", maps, graph.integers([0, 0, *window.padding] * 2))
    places = samples * prod(size)
    left = graph.reshape(across, (groups, outputs // groups, places) if groups > 1 else (outputs, places))
    parts = []
    for offsets in product(*(range(k) for k in window.kernel)):
        part = maps if window.pointwise else depthwise.shift(graph, maps, window, offsets, size)
        if groups > 1:
            right = graph.reshape(part, (groups, inputs, places))
            parts.append(graph.op("MatMul", left, graph.op("Transpose", right, perm=(0, 2, 1))))
        else:
            parts.append(graph.op("Gemm", left, graph.reshape(part, (inputs, places)), transB=1))
    if len(parts) == 1:
        return graph.reshape(parts[0], shape_of(weight))
    shifts = [graph.reshape(part, (outputs, inputs, 1)) for part in parts]
    return graph.reshape(graph.op("Concat", *shifts, axis=2), shape_of(weight))


def _batch_norm(graph: Graph, node: fx.Node) -> Value:
    """Of statistics that are given; those that train come as elementwise operators."""
    args: Any = node.args
    value, weight, bias, mean, variance, training, _, eps = args
    if training:
        raise TunerError("a step whose norms train is exported with weighted norms: trace it with padded=True")
    channels = shape_of(value)[1]
    ones, zeros = (graph.constant(np.full(channels, one), "float32") for one in (1, 0))
    given = [graph.of(one) if one is not None else other for one, other in ((weight, ones), (bias, zeros))]
    return (
        graph.op("BatchNormalization", graph.of(value), *given, graph.of(mean), graph.of(variance), epsilon=eps),
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
    wide = (1, channels, *([1] * (rank - 2)))
    axes = [0, *range(2, rank)]
    deviation = graph.op("Sqrt", graph.op("Add", graph.of(variance), graph.of(eps)))
    name = graph.of(gradient)
    of_input = of_weight = of_bias = None
    if wanted[0]:
        scale = graph.op("Div", graph.of(weight if weight is not None else 1.0), deviation)
        of_input = graph.op("Mul", name, graph.reshape(scale, wide))
    if wanted[1]:
        centred = graph.op("Sub", graph.of(value), graph.reshape(graph.of(mean), wide))
        of_weight = graph.op("Div", graph.sum(graph.op("Mul", name, centred), axes), deviation)
    if wanted[2]:
        of_bias = graph.sum(name, axes)
    return of_input, of_weight, of_bias


def _layer_norm(graph: Graph, node: fx.Node) -> Value:
    """The result, the mean and the inverse deviation."""
    args: Any = node.args
    value, shape, weight, bias, eps = args
    given = [graph.of(weight) if weight is not None else graph.constant(np.ones(shape), "float32")]
    given += [graph.of(bias)] if bias is not None else []
    return graph.ops("LayerNormalization", 3, graph.of(value), *given, axis=-len(shape), epsilon=eps)


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
    wide = (1, channels, *(1 for _ in shape_of(value)[2:]))
    if weight is not None:
        result = graph.op("Mul", result, graph.reshape(graph.of(weight), wide))
    if bias is not None:
        result = graph.op("Add", result, graph.reshape(graph.of(bias), wide))
    return result, *(graph.reshape(one, (samples, groups)) for one in (mean, scale))


def _pool_window(node: fx.Node, first: int, *, dilated: bool) -> Window:
    kernel = _wide(node.args[first], 2, 1)
    stride, padding = argument(node, first + 1, "stride") or kernel, argument(node, first + 2, "padding")
    return _window(kernel, stride, padding, argument(node, first + 3, "dilation") if dilated else None)


def _max_pool(graph: Graph, node: fx.Node) -> Value:
    """Maxima and where they are in the whole tensor, as ONNX counts."""
    window = _pool_window(node, 1, dilated=True)
    up = int(argument(node, 5, "ceil_mode", default=False))
    return graph.ops("MaxPool", 2, graph.of(node.args[0]), ceil_mode=up, **window.attributes())


def _max_pool_backward(graph: Graph, node: fx.Node) -> Value:
    """Every gradient at the place of its maximum; added up where windows overlap."""
    gradient, where = graph.of(node.args[0]), graph.of(node.args[-1])
    shape, window = shape_of(node), _pool_window(node, 2, dilated=True)
    over = (d * (k - 1) for d, k in zip(window.dilation, window.kernel, strict=True))
    if all(reach < stride for reach, stride in zip(over, window.stride, strict=True)):
        slid = {"kernel_shape": window.kernel, "strides": window.stride}
        return graph.op("MaxUnpool", gradient, where, graph.integers(shape), **slid)
    flat = graph.integers([-1])
    zeros = graph.op("Expand", graph.of(0.0), graph.integers([prod(shape)]))
    given = zeros, graph.op("Reshape", where, flat), graph.op("Reshape", gradient, flat)
    return graph.reshape(graph.op("ScatterElements", *given, reduction="add"), shape)


def _shares(inputs: int, window: tuple[int, int, int], outputs: int, *, padded: bool) -> np.ndarray[Any, Any]:
    """Return [outputs, inputs]: how much of each input is in each average along one axis."""
    kernel, stride, padding = window
    found = np.zeros((outputs, inputs), np.float32)
    for index in range(outputs):
        begin, end = index * stride - padding, min(index * stride - padding + kernel, inputs + padding)
        inside = slice(max(begin, 0), min(end, inputs))
        found[index, inside] = 1 / (end - begin if padded else inside.stop - inside.start)
    return found


def _averaged(graph: Graph, name: str, rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> str:
    """Return R x Cᵀ of every map."""
    left = graph.op("MatMul", graph.constant(rows, "float32"), name)
    return graph.op("MatMul", left, graph.constant(columns.T, "float32"))


def _average_matrices(node: fx.Node, inputs: Sequence[int], outputs: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """Return the matrices of an average pooling, fixed or adaptive, along both axes."""
    if node.target in {aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default}:  # noqa: SLF001 - the operators' names
        found = []
        for size, count in zip(inputs, outputs, strict=True):
            bounds = [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]
            places = np.arange(size)
            found.append(np.stack([((places >= b) & (places < e)).astype(np.float32) / (e - b) for b, e in bounds]))
        return found
    first = 1 if node.target == aten.avg_pool2d.default else 2
    window = _pool_window(node, first, dilated=False)
    padded = argument(node, first + 4, "count_include_pad", default=True)
    if argument(node, first + 5, "divisor_override") is not None:
        raise TunerError(
            "a step with average pooling of another divisor has no ONNX form: train it with --backend torch"
        )
    slides = zip(inputs, window.kernel, window.stride, window.padding, outputs, strict=True)
    return [_shares(size, (k, s, p), count, padded=padded) for size, k, s, p, count in slides]


def _average_pool(graph: Graph, node: fx.Node) -> Value:
    """Average pooling, separable along its axes, as two matrix products."""
    value: Any = node.args[0]
    rows, columns = _average_matrices(node, shape_of(value)[2:], shape_of(node)[2:])
    return _averaged(graph, graph.of(value), rows, columns)


def _average_pool_backward(graph: Graph, node: fx.Node) -> Value:
    gradient: Any = node.args[0]
    rows, columns = _average_matrices(node, shape_of(node)[2:], shape_of(gradient)[2:])
    return _averaged(graph, graph.of(gradient), rows.T, columns.T)


FORMS: Mapping[Any, Form] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.max_pool2d_with_indices_backward.default: _max_pool_backward,
    aten.avg_pool2d.default: _average_pool,
    aten.avg_pool2d_backward.default: _average_pool_backward,
    aten._adaptive_avg_pool2d.default: _average_pool,  # noqa: SLF001 - the operator's name
    aten._adaptive_avg_pool2d_backward.default: _average_pool_backward,  # noqa: SLF001 - the operator's name
}
