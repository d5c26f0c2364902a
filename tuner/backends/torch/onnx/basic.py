"""ONNX forms of elementwise operators, reductions, views and losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tuner.backends.torch.onnx.graph import Form, Graph, Value, argument, dtype_of, shape_of
from tuner.backends.torch.step.traced import StepError

aten = torch.ops.aten


def elementwise(kind: str) -> Form:
    """Return the form of an operator of two arguments: both in the result's type, the second times `alpha`."""

    def form(graph: Graph, node: fx.Node) -> Value:
        dtype = dtype_of(node)
        first, second = (graph.of(value, dtype) for value in node.args[:2])
        if node.kwargs.get("alpha", 1) != 1:
            second = graph.op("Mul", second, graph.of(node.kwargs["alpha"], dtype))
        return graph.spread(kind, node, first, second)

    return form


def _compared(kind: str) -> Form:
    def form(graph: Graph, node: fx.Node) -> Value:
        first = node.args[0]
        if not isinstance(first, fx.Node):
            raise TypeError(f"{node.target} compares a tensor")
        return graph.spread(kind, node, graph.of(first), graph.of(node.args[1], dtype_of(first)))

    return form


def _unary(kind: str) -> Form:
    return lambda graph, node: graph.spread(kind, node, graph.of(node.args[0], dtype_of(node)))


def _same(graph: Graph, node: fx.Node) -> Value:
    return graph.of(node.args[0], dtype_of(node))


def _reversed_sub(graph: Graph, node: fx.Node) -> Value:
    dtype = dtype_of(node)
    return graph.op("Sub", graph.of(node.args[1], dtype), graph.of(node.args[0], dtype))


def _rsqrt(graph: Graph, node: fx.Node) -> Value:
    return graph.op("Reciprocal", graph.op("Sqrt", graph.of(node.args[0])))


def _where(graph: Graph, node: fx.Node) -> Value:
    dtype = dtype_of(node)
    return graph.spread("Where", node, graph.of(node.args[0]), *(graph.of(value, dtype) for value in node.args[1:3]))


def _clamp(graph: Graph, node: fx.Node) -> Value:
    """hardtanh(x, low, high) and clamp(x, low, high), where either bound may be missing."""
    defaults = (-1.0, 1.0) if node.target == aten.hardtanh.default else (None, None)
    low, high = argument(node, 1, "min", defaults[0]), argument(node, 2, "max", defaults[1])
    bounds = ["" if value is None else graph.of(value, dtype_of(node)) for value in (low, high)]
    return graph.op("Clip", graph.of(node.args[0]), *(bounds if high is not None else bounds[:1]))


def _hardtanh_backward(graph: Graph, node: fx.Node) -> Value:
    """Of the result instead of the argument where there is one, which is as good and is kept anyway."""
    bounded: Any = node.args[1]
    ahead = [user for user in bounded.users if user.target == aten.hardtanh.default and user.args[1:] == node.args[2:4]]
    value = graph.of(ahead[0] if ahead else bounded)
    low, high = (graph.of(bound, dtype_of(node)) for bound in node.args[2:4])
    inside = graph.op("And", graph.op("Greater", value, low), graph.op("Less", value, high))
    return graph.masked(graph.of(node.args[0]), inside)


def _reduced(kind: str) -> Form:
    def form(graph: Graph, node: fx.Node) -> Value:
        axes = argument(node, 1, "dim") or []
        axes = [axes] if isinstance(axes, int) else axes
        operands = [graph.integers(axes)] if axes else []
        return graph.op(
            kind, graph.of(node.args[0]), *operands, keepdims=int(argument(node, 2, "keepdim", default=False))
        )

    return form


def _reshaped(graph: Graph, node: fx.Node) -> Value:
    return graph.reshape(graph.of(node.args[0]), shape_of(node))


def _expanded(graph: Graph, node: fx.Node) -> Value:
    name, before, after = graph.of(node.args[0]), shape_of(node.args[0]), shape_of(node)  # type: ignore[arg-type]  # a node
    return name if before == after else graph.op("Expand", name, graph.integers(after))


def _filled(fill: float | None, at: int = 1) -> Form:
    """Return a tensor of one value; of the argument `at` where `fill` is not given."""

    def form(graph: Graph, node: fx.Node) -> Value:
        value = graph.of(argument(node, at, "fill_value") if fill is None else fill, dtype_of(node))
        return graph.op("Expand", value, graph.integers(shape_of(node))) if shape_of(node) else value

    return form


def _sliced(graph: Graph, node: fx.Node) -> Value:
    axis, begin, end, step = argument(node, 1, "dim", 0), argument(node, 2, "start"), argument(node, 3, "end"), 1
    step = argument(node, 4, "step", 1)
    bounds = [0 if begin is None else begin, 2**31 if end is None else min(end, 2**31)]
    return graph.op("Slice", graph.of(node.args[0]), *(graph.integers([value]) for value in (*bounds, axis, step)))


def _unsliced(graph: Graph, node: fx.Node) -> Value:
    """The gradient of what was sliced: that of the slice, among zeros.

    Raises:
        StepError: The slice leaves elements out within its range.
    """
    arguments: Any = node.args[1:6]
    sizes, axis, begin, end, step = arguments
    if step != 1:
        raise StepError(f"a slice of step {step} has no ONNX form: train it with --backend torch")
    rank, bounds = len(sizes), range(sizes[axis])[begin:end]
    pads = [0] * (2 * rank)
    pads[axis % rank], pads[rank + axis % rank] = bounds.start, sizes[axis] - bounds.stop
    return graph.op("Pad", graph.of(node.args[0]), graph.integers(pads))


def _selected(graph: Graph, node: fx.Node) -> Value:
    return graph.op("Gather", graph.of(node.args[0]), graph.constant(node.args[2], "int64"), axis=node.args[1])  # type: ignore[arg-type]  # an integer


def _picked(graph: Graph, node: fx.Node) -> Value:
    return graph.op("Gather", graph.of(node.args[0]), graph.of(node.args[2]), axis=node.args[1])


def _index_added(graph: Graph, node: fx.Node) -> Value:
    """Add slices to those at some indices of an axis."""
    args: Any = node.args
    value, axis, index, slices = args[:4]
    along = [1] * len(shape_of(slices))
    along[axis] = -1
    places = graph.op("Expand", graph.reshape(graph.of(index), along), graph.integers(shape_of(slices)))
    added, factor = graph.of(slices), node.kwargs.get("alpha", 1)
    if factor != 1:
        added = graph.op("Mul", added, graph.of(factor, dtype_of(node)))
    return graph.op("ScatterElements", graph.of(value), places, added, axis=axis, reduction="add")


def _joined(graph: Graph, node: fx.Node) -> Value:
    parts: Sequence[Any] = node.args[0]  # type: ignore[assignment]  # a list of nodes
    return graph.op("Concat", *(graph.of(part, dtype_of(node)) for part in parts), axis=argument(node, 1, "dim", 0))


def _log_softmax(graph: Graph, node: fx.Node) -> Value:
    return graph.op("LogSoftmax", graph.of(node.args[0]), axis=node.args[1])


def _log_softmax_backward(graph: Graph, node: fx.Node) -> Value:
    gradient, result = graph.of(node.args[0]), graph.of(node.args[1])
    whole = graph.sum(gradient, [node.args[2]], keep=True)  # type: ignore[list-item]  # an integer
    return graph.op("Sub", gradient, graph.op("Mul", graph.op("Exp", result), whole))


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


def _elu(graph: Graph, node: fx.Node) -> Value:
    """Scale (x where x > 0, else α (exp(β x) − 1))."""
    value = graph.of(node.args[0])
    alpha, scale, inner = (argument(node, at, "", 1.0) for at in (1, 2, 3))
    below = graph.op("Sub", graph.op("Exp", graph.op("Mul", value, graph.of(inner))), graph.of(1.0))
    whole = graph.op("Where", graph.op("Greater", value, graph.of(0.0)), value, graph.op("Mul", below, graph.of(alpha)))
    return graph.op("Mul", whole, graph.of(scale))


def _nll_loss(graph: Graph, node: fx.Node) -> Value:
    """Losses of single samples; labels are valid rows."""
    label = graph.op("Unsqueeze", graph.of(node.args[1]), graph.integers([1]))
    picked = graph.op("GatherElements", graph.of(node.args[0]), label, axis=1)
    return graph.op("Neg", graph.op("Squeeze", picked, graph.integers([1]))), None


def _nll_loss_backward(graph: Graph, node: fx.Node) -> Value:
    samples, outputs = shape_of(node)
    hot = graph.op("OneHot", graph.of(node.args[2]), graph.integers([outputs]), graph.constant([0.0, -1.0], "float32"))
    return graph.op("Mul", hot, graph.reshape(graph.of(node.args[0]), (samples, 1)))


BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
COMPARED = {"ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less", "eq": "Equal"}
FORMS: Mapping[Any, Form] = {
    **{
        getattr(getattr(aten, name), kind): elementwise(to)
        for name, to in BINARY.items()
        for kind in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(aten, name), kind): _compared(to)
        for name, to in COMPARED.items()
        for kind in ("Tensor", "Scalar")
    },
    aten.pow.Scalar: elementwise("Pow"),
    aten.pow.Tensor_Scalar: elementwise("Pow"),
    aten.pow.Tensor_Tensor: elementwise("Pow"),
    aten.maximum.default: elementwise("Max"),
    aten.minimum.default: elementwise("Min"),
    aten.logical_and.default: elementwise("And"),
    aten.bitwise_and.Tensor: elementwise("And"),
    aten.bitwise_or.Tensor: elementwise("Or"),
    aten.logical_not.default: _unary("Not"),
    aten.bitwise_not.default: _unary("Not"),
    aten.sqrt.default: _unary("Sqrt"),
    aten.exp.default: _unary("Exp"),
    aten.log.default: _unary("Log"),
    aten.neg.default: _unary("Neg"),
    aten.abs.default: _unary("Abs"),
    aten.tanh.default: _unary("Tanh"),
    aten.sigmoid.default: _unary("Sigmoid"),
    aten.erf.default: _unary("Erf"),
    aten.relu.default: _unary("Relu"),
    aten.reciprocal.default: _unary("Reciprocal"),
    aten.rsqrt.default: _rsqrt,
    aten.log1p.default: lambda graph, node: graph.op("Log", graph.op("Add", graph.of(node.args[0]), graph.of(1.0))),
    aten.gelu.default: lambda graph, node: graph.op(
        "Gelu", graph.of(node.args[0]), approximate=node.kwargs.get("approximate", "none")
    ),
    aten.leaky_relu.default: lambda graph, node: graph.op(
        "LeakyRelu", graph.of(node.args[0]), alpha=argument(node, 1, "negative_slope", 0.01)
    ),
    aten.elu.default: _elu,
    aten._softmax.default: lambda graph, node: graph.op("Softmax", graph.of(node.args[0]), axis=node.args[1]),  # noqa: SLF001 - the operator's name
    aten.split_with_sizes.default: _split,
    aten.constant_pad_nd.default: _padded,
    aten.rsub.Scalar: _reversed_sub,
    aten.where.self: _where,
    aten.hardtanh.default: _clamp,
    aten.clamp.default: _clamp,
    aten.hardtanh_backward.default: _hardtanh_backward,
    aten._to_copy.default: _same,  # noqa: SLF001 - the operator's name
    aten.clone.default: _same,
    aten.detach.default: _same,
    aten.alias.default: _same,
    aten.sum.default: _reduced("ReduceSum"),
    aten.sum.dim_IntList: _reduced("ReduceSum"),
    aten.mean.default: _reduced("ReduceMean"),
    aten.mean.dim: _reduced("ReduceMean"),
    aten.amax.default: _reduced("ReduceMax"),
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,  # noqa: SLF001 - the operator's name
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.expand.default: _expanded,
    aten.slice.Tensor: _sliced,
    aten.slice_backward.default: _unsliced,
    aten.select.int: _selected,
    aten.index_select.default: _picked,
    aten.index_add.default: _index_added,
    aten.cat.default: _joined,
    aten.ones_like.default: _filled(1),
    aten.zeros_like.default: _filled(0),
    aten.new_zeros.default: _filled(0),
    aten.zeros.default: _filled(0),
    aten.empty_permuted.default: _filled(0),  # filled by what follows
    aten.full.default: _filled(None),
    aten.full_like.default: _filled(None),
    aten.scalar_tensor.default: _filled(None, 0),
    aten._log_softmax.default: _log_softmax,  # noqa: SLF001 - the operator's name
    aten._log_softmax_backward_data.default: _log_softmax_backward,  # noqa: SLF001 - the operator's name
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss_backward.default: _nll_loss_backward,
}
