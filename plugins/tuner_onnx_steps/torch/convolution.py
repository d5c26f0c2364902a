"""ONNX forms of convolutions, forward and backward."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch import fx

from tuner.errors import TunerError
from tuner_onnx_steps.torch import depthwise
from tuner_onnx_steps.torch.graph import Form, Graph, Value, shape_of
from tuner_onnx_steps.torch.window import Window, shift, sliding

aten = torch.ops.aten
FEW = 16  # channels, below which a product of one shift, or of a kernel turned round, is too narrow to be fast


def slid(convolution: fx.Node) -> Window:
    """Return how a traced convolution slides; refuse a transposed one."""
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
    window, name = slid(node), graph.of(value)
    shapes = shape_of(value), shape_of(node)
    if _depthwise(weight, groups) and depthwise.pays(shapes[0][0], window, shapes[0][2:], shapes[1][2:]):
        return depthwise.convolved(graph, name, kernel, bias, window, shapes)
    return graph.op("Conv", name, kernel, *([] if bias is None else [bias]), group=groups, **window.attributes())


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
    """Return the gradient of a convolution's input: that of its result convolved with the kernel turned round.

    Of depthwise convolutions of small maps it is a product, and of few channels one product whose columns are added
    where they overlap. With a stride, or more padding than the kernel reaches, it is a transposed convolution. What was
    slid (`kernel`) has the shape of `weight`.
    """
    outputs, inputs = shape_of(weight)[:2]
    shape, result = shape_of(value), shape_of(gradient)
    name = graph.of(gradient)
    single = _depthwise(weight, groups)
    if single and depthwise.pays(shape[0], window, shape[2:], result[2:]):
        return depthwise.input_gradient(graph, name, kernel, window, (shape, result))
    if groups == 1 and inputs < FEW and not window.pointwise:
        lined = graph.reshape(kernel, (outputs, inputs * prod(window.kernel)))
        columns = graph.op("MatMul", graph.op("Transpose", lined, perm=(1, 0)), graph.reshape(name, (*result[:2], -1)))
        attributes = window.flat().attributes()  # in one dimension ONNX Runtime's results are wrong
        maps = (1, *shape[2:])[-2:]
        sizes = graph.integers(maps), graph.integers(attributes.pop("kernel_shape"))
        return graph.reshape(graph.op("Col2Im", columns, *sizes, **attributes), shape)
    over = tuple(d * (k - 1) - p for d, k, p in zip(window.dilation, window.kernel, window.padding, strict=True))
    if set(window.stride) == {1} and min(over) >= 0 and (groups == 1 or single):
        axes = range(2, 2 + len(window.kernel))
        ends = [graph.integers([bound] * len(axes)) for bound in (-1, -(2**31))]
        steps = graph.integers(axes), graph.integers([-1] * len(axes))
        turned = kernel if set(window.kernel) == {1} else graph.op("Slice", kernel, *ends, *steps)
        if groups == 1:
            turned = graph.op("Transpose", turned, perm=(1, 0, *axes))
        window = Window(window.kernel, window.stride, over, window.dilation)
        return graph.op("Conv", name, turned, group=groups, **window.attributes())
    missing = [size - end for size, end in zip(shape[2:], window.reached(result[2:]), strict=True)]
    return graph.op("ConvTranspose", name, kernel, group=groups, output_padding=missing, **window.attributes())


def weight_gradient(
    graph: Graph, gradient: fx.Node, value: fx.Node, weight: fx.Node, window: Window, groups: int
) -> str:
    """Return products of the gradient with the input, shifted by each element of the kernel.

    Of few channels, and of a depthwise convolution of long rows, all shifts are one convolution of the input by the
    gradient, samples as channels; from one channel to few, a convolution for every sample, whose results are added; of
    many, each shift is a matrix product.
    """
    outputs, inputs = shape_of(weight)[:2]
    shapes = shape_of(value), shape_of(gradient)
    maps, across = graph.of(value), graph.of(gradient)
    (samples, channels, *sizes), (_, _, *size) = shapes
    single = _depthwise(weight, groups)
    if single:
        summed = depthwise.weight_gradient(graph, across, maps, window, shapes)
        if summed is not None:
            return graph.reshape(summed, shape_of(weight))
    few = groups == 1 and inputs < FEW and not window.pointwise
    if few and inputs == 1 and outputs < FEW:
        maps = graph.reshape(maps, (1, samples, *sizes))
        across = graph.reshape(across, (samples * outputs, 1, *size))
        products = _slid_by_gradient(graph, maps, across, window, samples, (sizes, size))
        return graph.sum(graph.reshape(products, (samples, *shape_of(weight))), [0])
    maps, across = _turned(graph, maps, window), _turned(graph, across, window)
    if single:
        maps = graph.reshape(maps, (1, channels * samples, *sizes))
        products = _slid_by_gradient(graph, maps, across, window, groups, (sizes, size))
    elif few:
        products = _turned(graph, _slid_by_gradient(graph, maps, across, window, 1, (sizes, size)), window)
    else:
        products = _by_shifts(graph, maps, across, window, (groups, outputs, inputs, samples), size)
    return graph.reshape(products, shape_of(weight))


def _turned(graph: Graph, name: str, window: Window) -> str:
    """Return maps with channels as samples, and samples as channels."""
    return graph.op("Transpose", name, perm=(1, 0, *range(2, 2 + len(window.kernel))))


def _slid_by_gradient(
    graph: Graph,
    value: str,
    gradient: str,
    window: Window,
    groups: int,
    sizes: tuple[Sequence[int], Sequence[int]],
) -> str:
    """Return what the gradient gives as a kernel on the input; sizes are of maps of the input and the gradient."""
    inputs, outputs = sizes
    turned = Window(tuple(outputs), window.dilation, window.padding, window.stride)
    products = graph.op("Conv", value, gradient, group=groups, **turned.attributes())
    if tuple(inputs) == window.reached(outputs):
        return products
    axes = range(2, 2 + len(outputs))  # the last places of the input are in no product
    return graph.op(
        "Slice", products, *(graph.integers(list(values)) for values in ([0] * len(axes), window.kernel, axes))
    )


def _by_shifts(
    graph: Graph, maps: str, across: str, window: Window, counts: tuple[int, int, int, int], size: Sequence[int]
) -> str:
    """Return [outputs, inputs, elements of the kernel], a matrix product for each element.

    Input and gradient have their channels first; counts are of groups, outputs, inputs of a group and samples.
    """
    groups, outputs, inputs, samples = counts
    if any(window.padding):
        maps = graph.op("Pad", maps, graph.integers([0, 0, *window.padding] * 2))
    places = samples * prod(size)
    left = graph.reshape(across, (groups, outputs // groups, places) if groups > 1 else (outputs, places))
    parts = []
    for offsets in product(*(range(k) for k in window.kernel)):
        part = maps if window.pointwise else shift(graph, maps, window, offsets, size)
        if groups > 1:
            right = graph.op("Transpose", graph.reshape(part, (groups, inputs, places)), perm=(0, 2, 1))
            products = graph.op("MatMul", left, right)
        else:
            products = graph.op("Gemm", left, graph.reshape(part, (inputs, places)), transB=1)
        parts.append(graph.reshape(products, (outputs, inputs, 1)))
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=2)


FORMS: Mapping[Any, Form] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
