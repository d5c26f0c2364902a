"""Activations that are cheaper to compute again than to keep for the backward pass.

A batch norm keeps its input, from which its result, and that of a clamp or a sum after it, can be had in a pass over
memory: bit for bit where statistics are frozen. So the result is dropped after its last use in the forward pass.
Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
"""

import operator
from collections.abc import Mapping

from torch import fx

from tuner_planned.torch.nodes import (
    ATEN,
    base,
    bytes_of,
    call,
    is_item,
    is_pointwise,
    is_view,
    items_of,
    value_of,
)

#: Smaller tensors are kept: computing them again costs more than their bytes are worth.
LEAST_BYTES = 65_536
#: Operators that one dropped tensor may need.
MOST_OPERATORS = 3
NORM = ATEN.native_batch_norm.default
NORMS = {NORM, ATEN._native_batch_norm_legit_functional.default}  # noqa: SLF001 - the operator's name
_TRAINING, _EPS = 5, 7


def without_cheap(graph: fx.Graph, loss: fx.Node) -> None:
    """Drop from what is stored for the backward pass, after `loss`, every tensor that is cheap to compute again.

    The graph is edited; new nodes carry ``meta["again"]``.
    """
    nodes = list(graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    end = place[loss]
    saved: dict[fx.Node, int] = {}  # by what is stored: where the backward pass first needs it
    for node in nodes[end + 1 :]:
        for used in node.all_input_nodes:
            whole = base(used)
            if place[whole] <= end and whole.op != "placeholder":
                saved.setdefault(whole, place[node])
    dropped: dict[fx.Node, list[fx.Node]] = {}
    for node in sorted(saved, key=place.__getitem__):
        chain = _chain(node, saved, dropped)
        if chain is not None:
            dropped[node] = chain
    for node, chain in dropped.items():
        _replace(graph, node, chain, nodes[saved[node]], {late: place[late] > end for late in nodes})
    graph.eliminate_dead_code()


def _chain(node: fx.Node, saved: Mapping[fx.Node, int], dropped: Mapping[fx.Node, object]) -> list[fx.Node] | None:
    """Return the nodes, in order, that compute `node` from what is stored; None where it has to be stored itself."""
    if bytes_of(node) < LEAST_BYTES:
        return None
    chain: list[fx.Node] = []

    def visit(current: fx.Node, *, first: bool) -> bool:
        if current in chain or current.op == "placeholder":
            return True
        whole = base(current)
        if not first and (whole.op == "placeholder" or (whole in saved and whole not in dropped)):
            return True
        if not first and 0 < bytes_of(current) < LEAST_BYTES:
            return True
        if not _cheap(current):
            return False
        parents = current.args[0].all_input_nodes if is_item(current) else current.all_input_nodes  # type: ignore[union-attr]  # an item's first argument is a node
        if not all(visit(parent, first=False) for parent in parents):
            return False
        chain.append(current)
        return True

    if not visit(node, first=True):
        return None
    return chain if sum(not is_view(link) for link in chain) <= MOST_OPERATORS else None


def _cheap(node: fx.Node) -> bool:
    if is_item(node):
        parent = node.args[0]
        return isinstance(parent, fx.Node) and parent.target in NORMS and bool(node.args[1] == 0)
    return value_of(node) is not None and (is_view(node) or is_pointwise(node))


def _replace(
    graph: fx.Graph, node: fx.Node, chain: list[fx.Node], before: fx.Node, late: Mapping[fx.Node, bool]
) -> None:
    """Insert a copy of the chain, and let the backward pass read that instead of `node`."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(before):
        for original in chain:
            copy = _normed_again(graph, original, copies) if is_item(original) else None
            copy = copy or graph.node_copy(original, lambda argument: copies.get(argument, argument))
            copy.meta = {"val": original.meta["val"], "again": True}
            copies[original] = copy
        _follow(graph, node, copies[node], late)


def _follow(graph: fx.Graph, old: fx.Node, new: fx.Node, late: Mapping[fx.Node, bool]) -> None:
    """Let late users of `old`, and of views of it made in the forward pass, read `new`."""
    for user in list(old.users):
        if late.get(user, False):
            user.replace_input_with(old, new)
        elif is_view(user) and user in late and any(_used_late(user, late)):
            copy = graph.node_copy(user, lambda argument: new if argument is old else argument)
            copy.meta = {"val": user.meta["val"], "again": True}
            _follow(graph, user, copy, late)


def _used_late(node: fx.Node, late: Mapping[fx.Node, bool]) -> list[bool]:
    return [late.get(user, False) or (is_view(user) and any(_used_late(user, late))) for user in node.users]


def _normed_again(graph: fx.Graph, item: fx.Node, copies: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """Return a node that computes a norm's result again, from the statistics it had, without moving them."""
    norm = item.args[0]
    if not isinstance(norm, fx.Node):
        raise TypeError("an item is taken of a node")
    args = [copies.get(argument, argument) if isinstance(argument, fx.Node) else argument for argument in norm.args]
    if args[_TRAINING]:
        mean, inverse = (
            next(iter(items_of(norm, index)), None)
            or call(graph, operator.getitem, (norm, index), norm.meta["val"][index], again=True)
            for index in (1, 2)
        )
        small = inverse.meta["val"]
        square = call(graph, ATEN.mul.Tensor, (inverse, inverse), small, again=True)
        spread = call(graph, ATEN.reciprocal.default, (square,), small, again=True)
        variance = call(graph, ATEN.sub.Tensor, (spread, args[_EPS]), small, again=True)
        args[3:6] = [mean, variance, False]
    again = call(graph, NORM, tuple(args), norm.meta["val"][:3], again=True)
    return graph.call_function(operator.getitem, (again, 0))
