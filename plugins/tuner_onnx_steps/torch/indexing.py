"""ONNX forms of operators that take parts of tensors, put parts in, or join them."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from tuner.backends.torch.step.traced import StepError
from tuner_onnx_steps.torch.graph import Form, Graph, Value, argument, dtype_of, shape_of

aten = torch.ops.aten


def _sliced(graph: Graph, node: fx.Node) -> Value:
    axis, begin, end = argument(node, 1, "dim", 0), argument(node, 2, "start"), argument(node, 3, "end")
    bounds = (
        0 if begin is None else begin,
        2**31 if end is None else min(end, 2**31),
        axis,
        argument(node, 4, "step", 1),
    )
    return graph.op("Slice", graph.of(node.args[0]), *(graph.integers([value]) for value in bounds))


def _unsliced(graph: Graph, node: fx.Node) -> Value:
    """The gradient of what was sliced: that of the slice, among zeros."""
    arguments: Any = node.args[1:6]
    sizes, axis, begin, end, step = arguments
    rank, bounds, given = len(sizes), range(sizes[axis])[begin:end:step], graph.of(node.args[0])
    axis %= rank
    if step != 1:
        shape = (*sizes[:axis], len(bounds), *sizes[axis + 1 :])
        zeros = graph.op("Expand", graph.of(0.0, dtype_of(node)), graph.integers(sizes))
        return _scattered(graph, zeros, axis, graph.integers(list(bounds)), given, shape)
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = bounds.start, sizes[axis] - bounds.stop
    return graph.op("Pad", given, graph.integers(pads))


def _picked(graph: Graph, node: fx.Node) -> Value:
    """Places of an axis, or one of them, given as a number."""
    place = node.args[2]
    index = graph.of(place) if isinstance(place, fx.Node) else graph.constant(place, "int64")  # type: ignore[arg-type]  # a number
    return graph.op("Gather", graph.of(node.args[0]), index, axis=node.args[1])


def _index_added(graph: Graph, node: fx.Node) -> Value:
    """Add slices to those at some indices of an axis."""
    args: Any = node.args
    value, axis, index, slices = args[:4]
    added, factor = graph.of(slices), node.kwargs.get("alpha", 1)
    if factor != 1:
        added = graph.op("Mul", added, graph.of(factor, dtype_of(node)))
    return _scattered(graph, graph.of(value), axis, graph.of(index), added, shape_of(slices))


def _scattered(graph: Graph, value: str, axis: int, index: str, added: str, shape: Sequence[int]) -> str:
    """Add slices `added` of a shape to those at the indices [n] of an axis."""
    along = [1] * len(shape)
    along[axis] = -1
    places = graph.op("Expand", graph.reshape(index, along), graph.integers(shape))
    return graph.op("ScatterElements", value, places, added, axis=axis, reduction="add")


def _axis_of(node: fx.Node) -> tuple[int, fx.Node]:
    """Return the axis that is indexed, and its indices."""
    indices: Any = node.args[1]
    found = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(found) != 1 or dtype_of(found[0][1]) == torch.bool:
        raise StepError(
            f"{node.target} with several indices, or a mask, has no ONNX form: train it with --backend torch"
        )
    return found[0]


def _indexed(graph: Graph, node: fx.Node) -> Value:
    axis, index = _axis_of(node)
    return graph.op("Gather", graph.of(node.args[0]), graph.of(index), axis=axis)


def _index_put(graph: Graph, node: fx.Node) -> Value:
    """Add slices at some indices of an axis: what gives the gradient of indexing."""
    axis, index = _axis_of(node)
    if not argument(node, 3, "accumulate", default=False):
        raise StepError(f"{node.target} that replaces values has no ONNX form: train it with --backend torch")
    value: Any = node.args[0]
    whole = shape_of(value)
    shape = (*whole[:axis], prod(shape_of(index)), *whole[axis + 1 :])
    added = graph.reshape(graph.of(node.args[2]), shape)
    return _scattered(graph, graph.of(value), axis, graph.reshape(graph.of(index), [-1]), added, shape)


def _joined(graph: Graph, node: fx.Node) -> Value:
    parts: Sequence[Any] = node.args[0]  # type: ignore[assignment]  # a list of nodes
    return graph.op("Concat", *(graph.of(part, dtype_of(node)) for part in parts), axis=argument(node, 1, "dim", 0))


def _split(graph: Graph, node: fx.Node) -> Value:
    sizes: Any = node.args[1]
    axis = argument(node, 2, "dim", 0)
    return graph.ops("Split", len(sizes), graph.of(node.args[0]), graph.integers(sizes), axis=axis)


def _padded(graph: Graph, node: fx.Node) -> Value:
    """By pairs of the last axis first, as torch gives them."""
    pairs: Any = node.args[1]
    rank = len(shape_of(node))
    pads = [0] * (2 * rank)
    for index, (before, after) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        pads[rank - 1 - index], pads[2 * rank - 1 - index] = before, after
    value = graph.of(argument(node, 2, "value", 0.0), dtype_of(node))
    return graph.op("Pad", graph.of(node.args[0]), graph.integers(pads), value)


def _embedding_backward(graph: Graph, node: fx.Node) -> Value:
    """The gradient of a table: that of what was looked up, added to the rows it came from."""
    args: Any = node.args
    gradient, index, rows, padding, scaled = args
    if scaled:
        raise StepError("an embedding with scale_grad_by_freq has no ONNX form: train it with --backend torch")
    width = shape_of(gradient)[-1]
    shape = (prod(shape_of(index)), width)
    zeros = graph.op("Expand", graph.of(0.0, dtype_of(node)), graph.integers([rows, width]))
    added = graph.reshape(graph.of(gradient), shape)
    table = _scattered(graph, zeros, 0, graph.reshape(graph.of(index), [-1]), added, shape)
    if padding < 0:
        return table
    kept = [[0.0 if row == padding else 1.0] for row in range(rows)]  # its own row does not learn
    return graph.op("Mul", table, graph.constant(kept, "float32"))


FORMS: Mapping[Any, Form] = {
    aten.split_with_sizes.default: _split,
    aten.constant_pad_nd.default: _padded,
    aten.slice.Tensor: _sliced,
    aten.slice_backward.default: _unsliced,
    **dict.fromkeys((aten.select.int, aten.index_select.default), _picked),
    aten.index_add.default: _index_added,
    aten.cat.default: _joined,
    aten.index.Tensor: _indexed,
    aten.embedding.default: lambda graph, node: graph.op("Gather", *map(graph.of, node.args[:2]), axis=0),
    aten.embedding_dense_backward.default: _embedding_backward,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,  # noqa: SLF001 - the operator's name
}
