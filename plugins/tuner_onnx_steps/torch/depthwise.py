"""Depthwise convolutions of small maps as products of matrices.

The fast kernels of ONNX Runtime 1.31 for these convolutions need weights that never change; where the weights are
inputs, as in a training step, every channel of every sample is a product of its own, too small to be fast. With all
places of a map in a row, channel c of a batch is a matrix x_c [samples, places], and

    y_c = x_c T_c    T_c = Σ_k w_ck B_k    ∂x_c = ∂y_c T_cᵀ    ∂w_ck = ⟨B_k, x_cᵀ ∂y_c⟩,

where B_k [places of x, places of y] is one where element k of the kernel takes a place of x to a place of y. This does
more arithmetic than sliding does, and takes a quarter of the time on maps of 5 × 5. The product for ∂w still pays on
maps too large for the others; and on yet larger ones with the rows of a map as so many samples, once for every row of
the kernel.
"""

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from tuner_onnx_steps.torch.graph import Graph
from tuner_onnx_steps.torch.window import Window, shift

#: Entries of T, up to which y and ∂x are faster by it than by sliding; and of x ∂y for ∂w.
MOST_SLID, MOST_SUMMED = 2_500, 10_000
#: Places of y for every sample, above which T takes more memory than it is worth; entries of all B.
MOST_PLACES, MOST_SEEN = 4, 250_000


def pays(samples: int, window: Window, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    """Return whether a convolution from maps of one size to such of another is better as a product."""
    return _small(MOST_SLID, samples, window, inputs, outputs)


def _small(most: int, samples: int, window: Window, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    entries, places = prod(inputs) * prod(outputs), prod(outputs)
    return entries <= most and places <= MOST_PLACES * samples and prod(window.kernel) * entries <= MOST_SEEN


def convolved(
    graph: Graph, value: str, kernel: str, bias: str | None, window: Window, shapes: tuple[Sequence[int], ...]
) -> str:
    """Return w ∗ x + b, the value, the kernel and the bias; shapes are those of x and y."""
    (samples, channels, *inputs), result = shapes
    matrix = _matrix(graph, kernel, channels, window, inputs, result[2:])
    lines = graph.op("MatMul", _lined(graph, value, (samples, channels, *inputs)), matrix)
    if bias is not None:
        lines = graph.op("Add", lines, graph.reshape(bias, (channels, 1, 1)))
    return _mapped(graph, lines, result)


def input_gradient(graph: Graph, gradient: str, kernel: str, window: Window, shapes: tuple[Sequence[int], ...]) -> str:
    """Return ∂x; shapes are those of x and y."""
    value, result = shapes
    matrix = _matrix(graph, kernel, value[1], window, value[2:], result[2:])
    turned = graph.op("Transpose", matrix, perm=(0, 2, 1))
    return _mapped(graph, graph.op("MatMul", _lined(graph, gradient, result), turned), value)


def weight_gradient(
    graph: Graph, gradient: str, value: str, window: Window, shapes: tuple[Sequence[int], ...]
) -> str | None:
    """Return ∂w [channels, elements of the kernel], None where rows are too long; shapes are those of x and y."""
    (samples, channels, *inputs), (_, _, *outputs) = shapes
    rank = len(inputs)
    for lead in range(rank):  # axes along which the kernel is shifted, and whose places count as samples
        rows, seen = samples * prod(outputs[:lead]), window.trailing(lead)
        if _small(MOST_SUMMED, rows, seen, inputs[lead:], outputs[lead:]):
            break
    else:
        return None
    places, entries = prod(outputs[lead:]), prod(inputs[lead:]) * prod(outputs[lead:])
    order = (1, 0, *range(2, 2 + rank))
    across = graph.reshape(graph.op("Transpose", gradient, perm=order), (channels, rows, places))
    maps = graph.op("Transpose", value, perm=order)
    if any(window.padding[:lead]):
        pads = [0, 0, *window.padding[:lead], *([0] * (rank - lead))]
        maps = graph.op("Pad", maps, graph.integers(pads * 2))
    parts = []
    for offsets in product(*(range(k) for k in window.kernel[:lead])):
        shifted = shift(graph, maps, window, offsets, outputs)
        lined = graph.op("Transpose", graph.reshape(shifted, (channels, rows, prod(inputs[lead:]))), perm=(0, 2, 1))
        parts.append(graph.reshape(graph.op("MatMul", lined, across), (channels, 1, entries)))
    whole = parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)
    banks = graph.reshape(_seen(graph, seen, inputs[lead:], outputs[lead:]), (prod(seen.kernel), entries))
    turned = graph.op("Transpose", banks, perm=(1, 0))
    return graph.reshape(graph.op("MatMul", whole, turned), (channels, prod(window.kernel)))


def _matrix(
    graph: Graph, kernel: str, channels: int, window: Window, inputs: Sequence[int], outputs: Sequence[int]
) -> str:
    """Return T [channels, places of x, places of y]."""
    elements, entries = prod(window.kernel), prod(inputs) * prod(outputs)
    seen = graph.reshape(_seen(graph, window, inputs, outputs), (elements, entries))
    matrix = graph.op("MatMul", graph.reshape(kernel, (channels, elements)), seen)
    return graph.reshape(matrix, (channels, prod(inputs), prod(outputs)))


def _seen(graph: Graph, window: Window, inputs: Sequence[int], outputs: Sequence[int]) -> str:
    """Return B [elements of the kernel, places of x, places of y], which ONNX Runtime makes once, as it loads."""
    place, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), np.bool_)
    for size, count, k, s, p, d in zip(
        inputs, outputs, window.kernel, window.stride, window.padding, window.dilation, strict=True
    ):
        at = np.arange(k)[:, None] * d + np.arange(count) * s - p
        shape = place.shape[0] * k, place.shape[1] * count
        place = (place[:, None, :, None] * size + at[None, :, None, :]).reshape(shape)
        inside = (inside[:, None, :, None] & ((at >= 0) & (at < size))[None, :, None, :]).reshape(shape)
    places = prod(inputs)
    at_places = graph.constant(np.where(inside, place, places), "int64")  # beyond the last: of nothing
    return graph.op("OneHot", at_places, graph.integers([places]), graph.constant([0.0, 1.0], "float32"), axis=1)


def _lined(graph: Graph, value: str, shape: Sequence[int]) -> str:
    """Return maps as matrices [channels, samples, places]."""
    samples, channels, *sizes = shape
    return graph.op("Transpose", graph.reshape(value, (samples, channels, prod(sizes))), perm=(1, 0, 2))


def _mapped(graph: Graph, value: str, shape: Sequence[int]) -> str:
    """Return matrices [channels, samples, places] as maps of a shape."""
    return graph.reshape(graph.op("Transpose", value, perm=(1, 0, 2)), shape)
