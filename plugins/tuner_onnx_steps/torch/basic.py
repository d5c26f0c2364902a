"""ONNX forms of elementwise operators, reductions, views and losses."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import fx

from tuner.backends.torch.step.traced import StepError
from tuner_onnx_steps.torch.graph import TYPES, Form, Graph, Value, argument, dtype_of, shape_of

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
    return lambda graph, node: graph.op(kind, graph.of(node.args[0]), *_axes(graph, node, 1), keepdims=_keeps(node, 2))


def _any(graph: Graph, node: fx.Node) -> Value:
    found = graph.op(
        "ReduceMax", graph.cast(graph.of(node.args[0]), torch.int32), *_axes(graph, node, 1), keepdims=_keeps(node, 2)
    )
    return graph.cast(found, torch.bool)


def _norm(graph: Graph, node: fx.Node) -> Value:
    """Raises StepError where it is not the Euclidean one."""
    if argument(node, 1, "ord", 2) != 2:  # noqa: PLR2004 - the order of the Euclidean norm
        raise StepError("a vector norm other than the Euclidean one has no ONNX form: train it with --backend torch")
    return graph.op("ReduceL2", graph.of(node.args[0]), *_axes(graph, node, 2), keepdims=_keeps(node, 3))


def _axes(graph: Graph, node: fx.Node, at: int) -> list[str]:
    """Return the input that names the axes of a reduction; none where it is over all."""
    axes = argument(node, at, "dim")
    axes = [axes] if isinstance(axes, int) else axes
    return [graph.integers(axes)] if axes else []


def _keeps(node: fx.Node, at: int) -> int:
    return int(argument(node, at, "keepdim", default=False))


def _counted(graph: Graph, node: fx.Node) -> Value:
    """arange(start, end, step), which is a constant."""
    start, end, step = node.args[0], node.args[1], argument(node, 2, "step", 1)
    return graph.constant(np.arange(start, end, step), TYPES[dtype_of(node)])  # type: ignore[arg-type]  # numbers


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


def _softmax(kind: str) -> Form:
    return lambda graph, node: graph.op(kind, graph.of(node.args[0]), axis=node.args[1])


def _log_softmax_backward(graph: Graph, node: fx.Node) -> Value:
    gradient, result = graph.of(node.args[0]), graph.of(node.args[1])
    whole = graph.sum(gradient, [node.args[2]], keep=True)  # type: ignore[list-item]  # an integer
    return graph.op("Sub", gradient, graph.op("Mul", graph.op("Exp", result), whole))


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


_PAIRS = {
    elementwise: {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"},
    _compared: {"ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less", "eq": "Equal"},
}
_UNARY = {
    "logical_not": "Not", "bitwise_not": "Not", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "neg": "Neg", "abs": "Abs",
    "floor": "Floor", "tanh": "Tanh", "sigmoid": "Sigmoid", "erf": "Erf", "relu": "Relu", "reciprocal": "Reciprocal",
}  # fmt: skip
FORMS: Mapping[Any, Form] = {
    **{
        getattr(getattr(aten, name), kind): form(to)
        for form, names in _PAIRS.items()
        for name, to in names.items()
        for kind in ("Tensor", "Scalar")
    },
    **{getattr(aten, name).default: _unary(to) for name, to in _UNARY.items()},
    **dict.fromkeys((aten.pow.Scalar, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor), elementwise("Pow")),
    **dict.fromkeys((aten.logical_and.default, aten.bitwise_and.Tensor), elementwise("And")),
    aten.bitwise_or.Tensor: elementwise("Or"),
    aten.maximum.default: elementwise("Max"),
    aten.minimum.default: elementwise("Min"),
    aten.fmod.Scalar: lambda graph, node: graph.op(
        "Mod", *(graph.of(value, dtype_of(node)) for value in node.args[:2]), fmod=1
    ),
    aten.rsqrt.default: _rsqrt,
    aten.log1p.default: lambda graph, node: graph.op("Log", graph.op("Add", graph.of(node.args[0]), graph.of(1.0))),
    aten.gelu.default: lambda graph, node: graph.op(
        "Gelu", graph.of(node.args[0]), approximate=node.kwargs.get("approximate", "none")
    ),
    aten.leaky_relu.default: lambda graph, node: graph.op(
        "LeakyRelu", graph.of(node.args[0]), alpha=argument(node, 1, "negative_slope", 0.01)
    ),
    aten.elu.default: _elu,
    aten._softmax.default: _softmax("Softmax"),  # noqa: SLF001 - the operator's name
    aten._log_softmax.default: _softmax("LogSoftmax"),  # noqa: SLF001 - likewise
    aten._log_softmax_backward_data.default: _log_softmax_backward,  # noqa: SLF001 - likewise
    aten.rsub.Scalar: _reversed_sub,
    aten.where.self: _where,
    **dict.fromkeys((aten.hardtanh.default, aten.clamp.default), _clamp),
    aten.hardtanh_backward.default: _hardtanh_backward,
    aten._to_copy.default: _same,  # noqa: SLF001 - the operator's name
    **dict.fromkeys((aten.clone.default, aten.detach.default, aten.alias.default), _same),
    **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList), _reduced("ReduceSum")),
    **dict.fromkeys((aten.mean.default, aten.mean.dim), _reduced("ReduceMean")),
    aten.amax.default: _reduced("ReduceMax"),
    **dict.fromkeys((aten.any.dim, aten.any.dims), _any),
    aten.linalg_vector_norm.default: _norm,
    aten.arange.start_step: _counted,
    aten._unsafe_view.default: _reshaped,  # noqa: SLF001 - the operator's name
    **dict.fromkeys((aten.view.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default), _reshaped),
    aten.expand.default: _expanded,
    aten.ones_like.default: _filled(1),
    **dict.fromkeys((aten.zeros_like.default, aten.new_zeros.default, aten.zeros.default), _filled(0)),
    aten.empty_permuted.default: _filled(0),  # filled by what follows
    **dict.fromkeys((aten.full.default, aten.full_like.default), _filled(None)),
    aten.scalar_tensor.default: _filled(None, 0),
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss_backward.default: _nll_loss_backward,
}
