"""ONNX forms of convolutions, forward and backward."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch import fx

from tuner.backends.torch.lower import depthwise
from tuner.backends.torch.lower.graph import Form, Graph, Value, shape_of
from tuner.backends.torch.lower.window import Window, sliding
from tuner.errors import TunerError

aten = torch.ops.aten
FEW = 16  # channels, below which a product of one shift, or of a kernel turned round, is too narrow to be fast


def slid(convolution: fx.Node) -> Window:
    """Return how a traced convolution slides.

    Raises:
        TunerError: It is a transposed one.
    """
    args: Any = convolution.args
    _, weight, _, stride, padding, dilation, transposed, *_ = args
    if transposed:
        raise TunerError("a step with a transposed convolution has no ONNX form: train it with --backend torch")
    return sliding(shape_of(weight)[2:], stride, padding, dilation)


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
    window = sliding(shape_of(weight)[2:], stride, padding, dilation)
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
    missing = [size - end for size, end in zip(shape[2:], _reached(window, result[2:]), strict=True)]
    return graph.op("ConvTranspose", name, kernel, group=groups, output_padding=missing, **window.attributes())


def _reached(window: Window, outputs: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the least maps that give maps of some sizes."""
    slides = zip(outputs, window.stride, window.padding, window.dilation, window.kernel, strict=True)
    return tuple((size - 1) * s - 2 * p + d * (k - 1) + 1 for size, s, p, d, k in slides)


def _slid_by_gradient(
    graph: Graph, value: str, gradient: str, window: Window, groups: int, sizes: tuple[Sequence[int], Sequence[int]]
) -> str:
    """Return what the gradient gives as a kernel on the input; sizes are of maps of the input and the gradient."""
    inputs, outputs = sizes
    turned = Window(tuple(outputs), window.dilation, window.padding, window.stride)
    found = graph.op("Conv", value, gradient, group=groups, **turned.attributes())
    if tuple(inputs) == _reached(window, outputs):
        return found
    axes = range(2, 2 + len(outputs))  # the last places of the input are in no product
    return graph.op("Slice", found, *(graph.integers(list(one)) for one in ([0] * len(axes), window.kernel, axes)))


def weight_gradient(
    graph: Graph, gradient: fx.Node, value: fx.Node, weight: fx.Node, window: Window, groups: int
) -> str:
    """Return products of the gradient with the input, shifted by each element of the kernel.

    Of few channels, and of a depthwise convolution of long rows, all shifts are one convolution of the input by the
    gradient, samples as channels; from one channel to few, a convolution for every sample, whose results are added; of
    many, each shift is a matrix product.
    """
    outputs, inputs = shape_of(weight)[:2]
    single = _depthwise(weight, groups)
    if single:
        shapes = shape_of(value), shape_of(gradient)
        summed = depthwise.weight_gradient(graph, graph.of(gradient), graph.of(value), window, shapes)
        if summed is not None:
            return graph.reshape(summed, shape_of(weight))
    samples, _, *size = shape_of(gradient)
    axes = tuple(range(2, 2 + len(window.kernel)))
    if inputs == groups == 1 and outputs < FEW and not window.pointwise:
        lined = graph.reshape(graph.of(value), (1, samples, *shape_of(value)[2:]))
        across = graph.reshape(graph.of(gradient), (samples * outputs, 1, *size))
        found = _slid_by_gradient(graph, lined, across, window, samples, (shape_of(value)[2:], size))
        return graph.sum(graph.reshape(found, (samples, *shape_of(weight))), [0])
    across = graph.op("Transpose", graph.of(gradient), perm=(1, 0, *axes))
    maps = graph.op("Transpose", graph.of(value), perm=(1, 0, *axes))
    if single or (groups == 1 and inputs < FEW and not window.pointwise):
        lined = graph.reshape(maps, (1, groups * samples, *shape_of(value)[2:])) if single else maps
        found = _slid_by_gradient(graph, lined, across, window, groups, (shape_of(value)[2:], size))
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


FORMS: Mapping[Any, Form] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
