"""ONNX forms of transpositions and matrix products; sums that a product can take in."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from tuner_onnx_steps.torch.basic import elementwise
from tuner_onnx_steps.torch.graph import Form, Graph, Value, dtype_of, shape_of

aten = torch.ops.aten


def order(node: fx.Node) -> list[int] | None:
    """Return the order of axes that a node brings its argument in, if it does only that."""
    rank = len(shape_of(node)) if "val" in node.meta and isinstance(node.meta["val"], torch.Tensor) else 0
    axes = list(range(rank))
    if node.target == aten.t.default:
        return axes[::-1]
    arguments: Any = node.args[1:]
    if node.target == aten.permute.default:
        return [axis % rank for axis in arguments[0]]
    if node.target == aten.transpose.int:
        first, second = (axis % rank for axis in arguments)
        axes[first], axes[second] = second, first
        return axes
    return None


def _transposed(graph: Graph, node: fx.Node) -> Value:
    source = _once(node)
    if source is not node:
        return graph.of(source)
    return graph.op("Transpose", graph.of(node.args[0]), perm=order(node))


def _plain(graph: Graph, value: Any) -> tuple[str, int]:
    """Return a matrix without its transposition, and whether it had one."""
    if isinstance(value, fx.Node) and order(value) == [1, 0]:
        return graph.of(value.args[0]), 1
    return graph.of(value), 0


def _once(value: Any) -> Any:
    """Return a matrix without two transpositions that undo each other."""
    inner = value.args[0] if isinstance(value, fx.Node) and order(value) == [1, 0] else None
    return inner.args[0] if isinstance(inner, fx.Node) and order(inner) == [1, 0] else value


def _add(graph: Graph, node: fx.Node) -> Value:
    """A sum; that of a product of matrices and a scaled matrix, as of a gradient and a momentum, is one operator."""
    first, second = node.args[:2]
    pairs: Any = ((first, second), (second, first))
    for scaled, whole in pairs:
        product = _once(whole)
        if not isinstance(scaled, fx.Node) or not isinstance(product, fx.Node) or node.kwargs.get("alpha", 1) != 1:
            continue
        if product.target != aten.mm.default or scaled.target != aten.mul.Tensor:
            continue
        value, scale = scaled.args
        alone = len(product.users) == len(whole.users) == 1
        if alone and isinstance(value, fx.Node) and isinstance(scale, float) and _alike(node, value, product):
            return _mm(graph, product, graph.of(value), beta=scale)
    return elementwise("Add")(graph, node)


def _alike(*nodes: fx.Node) -> bool:
    return len({(shape_of(node), dtype_of(node)) for node in nodes}) == 1


def _mm(graph: Graph, node: fx.Node, *added: str, **scaling: float) -> Value:
    (a, transposed_a), (b, transposed_b) = (_plain(graph, value) for value in node.args[-2:])
    return graph.op("Gemm", a, b, *added, transA=transposed_a, transB=transposed_b, **scaling)


def _addmm(graph: Graph, node: fx.Node) -> Value:
    scaling: Any = {name: float(node.kwargs.get(name, 1)) for name in ("alpha", "beta")}  # type: ignore[arg-type]  # numbers
    return _mm(graph, node, graph.of(node.args[0]), **scaling)


FORMS: Mapping[Any, Form] = {
    aten.add.Tensor: _add,
    aten.t.default: _transposed,
    aten.permute.default: _transposed,
    aten.transpose.int: _transposed,
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: lambda graph, node: graph.op("MatMul", *(graph.of(value) for value in node.args[:2])),
}
