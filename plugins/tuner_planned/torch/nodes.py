"""What a planner has to know of a traced node: its shape, its bytes, what it shares memory with."""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

ATEN = torch.ops.aten


def value_of(node: fx.Node) -> torch.Tensor | None:
    """Return the node's tensor as traced (it holds no data), or None where it gives several or none."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def bytes_of(node: fx.Node) -> int:
    """Return the bytes of the storage behind the node's tensor."""
    value = value_of(node)
    return 0 if value is None else int(value.untyped_storage().nbytes())


def is_view(node: fx.Node) -> bool:
    """Return whether the node's tensors share memory with its first argument."""
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - the class has no public name
        return False
    if node.target == ATEN._unsafe_view.default:  # noqa: SLF001 - the operator's name
        return True
    returned = node.target._schema.returns  # noqa: SLF001 - the schema has no public name
    return bool(returned) and returned[0].alias_info is not None and not returned[0].alias_info.is_write


def is_pointwise(node: fx.Node) -> bool:
    """Return whether every element of the result depends on one element of each argument."""
    return isinstance(node.target, torch._ops.OpOverload) and (  # noqa: SLF001 - the class has no public name
        torch.Tag.pointwise in node.target.tags or node.target in {ATEN._to_copy.default, ATEN.clone.default}  # noqa: SLF001 - the operator's name
    )


def is_item(node: fx.Node) -> bool:
    """Return whether the node takes one of several results of another."""
    return node.op == "call_function" and node.target is operator.getitem


def items_of(node: fx.Node, index: int) -> list[fx.Node]:
    """Return what takes one of a node's several results."""
    return [user for user in node.users if is_item(user) and user.args[1] == index]


def base(node: fx.Node) -> fx.Node:
    """Return the node whose memory a node's tensor lies in: itself, unless it is a view or an item of views."""
    while True:
        parent = node.args[0] if node.args else None
        if is_item(node):
            if not (isinstance(parent, fx.Node) and is_view(parent)):
                return node
        elif not is_view(node):
            return node
        if not isinstance(parent, fx.Node):
            return node
        node = parent


def readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes that read a node's memory, through views too; views and items themselves read nothing."""
    for user in node.users:
        if is_view(user) or is_item(user):
            yield from readers(user)
        else:
            yield user


def call(graph: fx.Graph, target: Any, args: tuple[Any, ...], value: Any, **meta: bool) -> fx.Node:
    """Insert a call of an operator that gives a tensor, or several, like `value`."""
    node = graph.call_function(target, args)
    node.meta = {"val": value, **meta}
    return node
