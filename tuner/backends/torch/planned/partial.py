"""Weight gradients of which only some channels are read, computed of these channels alone.

A weight that is W plus an update of some channels (`torch.Tensor.index_add`) needs the gradient of these channels. Of
the convolution's input only these are stored then. Source: Lin et al. (2022), section 3.2, sparse tensor update.
"""

from typing import Any

from torch import fx

from tuner.backends.torch.planned.nodes import ATEN, call, is_item

_CONVOLUTION, _SELECTED = ATEN.convolution_backward.default, ATEN.index_select.default
#: Dimensions of a batch of maps, [n, c, h, w].
_MAPS = 4


def selections(item: fx.Node) -> list[fx.Node]:
    """Return the selections of some channels that are all that reads a gradient; empty where something else does."""
    users = list(item.users)
    same = all(user.target == _SELECTED and user.args[1:] == users[0].args[1:] for user in users)
    return users if same else []


def in_part(graph: fx.Graph) -> None:
    """Compute partly read weight gradients in part; edits the graph.

    Args:
        graph: Graph of a step.
    """
    for node in graph.find_nodes(op="call_function", target=_CONVOLUTION):
        for item in [user for user in node.users if is_item(user) and user.args[1] == 1]:
            found = selections(item)
            if found:
                _divide(graph, node, found)
    graph.eliminate_dead_code()


def _divide(graph: fx.Graph, node: fx.Node, found: list[fx.Node]) -> None:
    args: Any = node.args
    gradient, value, weight, *window, groups, wanted = args
    _, axis, channels = found[0].args
    outputs, inputs = weight.meta["val"].shape[:2]
    dimension, single = axis % weight.meta["val"].ndim, inputs == 1 and outputs == groups
    transposed = args[7]
    if transposed or ((dimension, groups) != (1, 1) and not (dimension == 0 and single)):
        return
    place = {one: number for number, one in enumerate(graph.nodes)}
    if channels.op != "placeholder" and place[channels] > place[value]:  # type: ignore[union-attr]  # a node
        return
    first = next(one for one in graph.nodes if one.op != "placeholder")
    with graph.inserting_before(first) if value.op == "placeholder" else graph.inserting_after(value):
        stored = _chosen(graph, value, channels)
    with graph.inserting_before(node):
        gradient = _chosen(graph, gradient, channels) if single else gradient
        like = call(graph, _SELECTED, (weight, dimension, channels), found[0].meta["val"])
        count = len(channels.meta["val"]) if single else 1  # type: ignore[union-attr]  # a node
        of_weight = (gradient, stored, like, *window, count, [False, True, False])
        divided = graph.call_function(_CONVOLUTION, of_weight)
        divided.meta = {"val": (None, found[0].meta["val"], None)}
        result = graph.call_function(_item_of(node), (divided, 1))
        result.meta = {"val": found[0].meta["val"]}
    for selection in found:
        selection.replace_all_uses_with(result)
    node.args = (*args[:10], [wanted[0], False, wanted[2]])


def _item_of(node: fx.Node) -> Any:
    return next(user.target for user in node.users if is_item(user))


def _chosen(graph: fx.Graph, value: fx.Node, channels: Any) -> fx.Node:
    """Insert some channels of maps, which stay channels last."""
    traced, index = value.meta["val"], channels.meta["val"]
    if traced.ndim != _MAPS:
        return call(graph, _SELECTED, (value, 1, channels), traced.index_select(1, index))
    last = call(graph, ATEN.permute.default, (value, [0, 2, 3, 1]), traced.permute(0, 2, 3, 1))
    with graph.inserting_after(last):
        chosen = call(graph, _SELECTED, (last, 3, channels), last.meta["val"].index_select(3, index))
    with graph.inserting_after(chosen):
        return call(graph, ATEN.permute.default, (chosen, [0, 3, 1, 2]), chosen.meta["val"].permute(0, 3, 1, 2))
