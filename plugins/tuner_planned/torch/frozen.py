"""What a step need not compute or store where weights do not train.

- **A norm whose statistics and scale are frozen** is folded into the convolution before it, forward and backward: with
  y = γ (w ∗ x − μ) / σ + β and s = γ / σ, y = (s w) ∗ x + (β − s μ). With g the gradient of y, that of x is g convolved
  with s w, that of w is s times its own from g, and that of β is Σ g. Neither w ∗ x nor s g is made.
- **The input of a convolution** is read by the gradient of its weight alone.
- **What a clamp or a ReLU returns** is compared with the bounds: where nothing else reads it, one byte says as much.
- **A weight that is W plus an update of some channels** (`torch.Tensor.index_add`) needs the gradient of these channels
  alone, and of the convolution's input only these are stored.

Sources: TinyTL (Cai et al., 2020), section 3.1, for what each layer stores; Lin et al. (2022), section 3.2, sparse
tensor update.
"""

import operator
from typing import Any

import torch
from torch import fx

from tuner_planned.torch.nodes import ATEN, call, is_item, is_view, items_of, readers

_CONVOLUTION, _CONVOLVED = ATEN.convolution_backward.default, ATEN.convolution.default
_NORM, _NORMED = ATEN.native_batch_norm_backward.default, ATEN.native_batch_norm.default
_CLAMP, _RELU = ATEN.hardtanh_backward.default, ATEN.threshold_backward.default
_SELECTED = ATEN.index_select.default
#: Dimensions of a batch of maps, [n, c, h, w].
_MAPS = 4


def without_unread(graph: fx.Graph) -> None:
    """Fold a step's frozen norms, and let gradients that do not read an input take none; edits the graph."""
    for node in graph.find_nodes(op="call_function", target=_CONVOLVED):
        _fold(graph, node)
    graph.eliminate_dead_code()
    _in_part(graph)
    for node in graph.find_nodes(op="call_function", target=_CONVOLUTION):
        _unread(graph, node)
    graph.eliminate_dead_code()


def with_masks(graph: fx.Graph, loss: fx.Node) -> None:
    """Keep of a tensor that the backward pass, after `loss`, compares with bounds alone whether it is inside.

    That is a byte each; the graph is edited.
    """
    place = {node: index for index, node in enumerate(graph.nodes)}
    compared: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.target in {_CLAMP, _RELU} and place[node] > place[loss]:
            compared.setdefault(node.args[1], []).append(node)
    for value, users in compared.items():
        if value.op == "placeholder" or value.meta.get("again") or is_view(value):
            continue
        if any(place.get(reader, -1) > place[loss] and reader not in users for reader in readers(value)):
            continue  # it is stored whole for another reader
        for node in users:
            mask = _mask(graph, value, node.args[2:])
            with graph.inserting_before(node):
                number = node.meta["val"].new_empty(())
                zero = call(graph, ATEN.scalar_tensor.default, (0.0,), number)
                masked = call(graph, ATEN.where.self, (mask, node.args[0], zero), node.meta["val"])  # a product copies
            node.replace_all_uses_with(masked)
            graph.erase_node(node)


def _fold(graph: fx.Graph, convolution: fx.Node) -> None:
    """Fold the frozen norm after a convolution into it, where nothing else reads the convolution."""
    norms = [user for user in convolution.users if user.target == _NORMED]
    backward = [user for user in convolution.users if user.target == _NORM]
    if (len(norms), len(backward), len(convolution.users)) != (1, 1, 2) or convolution.args[6]:
        return
    (norm,), (gradients,) = norms, backward
    if norm.args[5] or gradients.args[7] or gradients.args[9][1]:  # type: ignore[index]  # a list of three
        return
    place = {one: number for number, one in enumerate(graph.nodes)}
    if any(place[source] > place[convolution] for source in norm.all_input_nodes if source is not convolution):
        return  # a scale or a shift that is computed: it comes later
    items = {item.args[1]: item for item in gradients.users if is_item(item)}
    ends = list(items[0].users) if 0 in items else []
    if any(end.target != _CONVOLUTION or end.args[2] is not convolution.args[1] for end in ends):
        return
    args: Any = convolution.args
    value, weight, bias, *rest = args
    with graph.inserting_before(convolution):
        scale, shift = _scale_and_shift(graph, norm, bias)
        folded = call(graph, ATEN.mul.Tensor, (weight, _rows(graph, scale, weight)), weight.meta["val"])
        made = call(graph, _CONVOLVED, (value, folded, shift, *rest), convolution.meta["val"])
    items_of(norm, 0)[0].replace_all_uses_with(made)
    gradient: Any = gradients.args[0]
    for end in ends:
        _fold_backward(graph, end, gradient, folded, scale)
    if 2 in items:  # noqa: PLR2004 - the place of the shift's gradient
        items[2].replace_all_uses_with(_summed(graph, gradients, gradient, items[2].meta["val"]))


def _fold_backward(graph: fx.Graph, end: fx.Node, gradient: fx.Node, folded: fx.Node, scale: fx.Node) -> None:
    """Let a convolution's gradients start from those of the folded norm's result."""
    old = {item.args[1]: item for item in end.users if is_item(item)}
    end.args = (gradient, end.args[1], folded, *end.args[3:])
    for number in (1, 2):
        results = _selections(old[number]) or [old[number]] if number in old else []  # only parts may be read
        for result in results:
            rows = scale
            with graph.inserting_after(result):
                if result.target == _SELECTED and result.args[1] == 0:
                    channels: Any = result.args[2]
                    small = scale.meta["val"].index_select(0, channels.meta["val"])
                    rows = call(graph, _SELECTED, (scale, 0, channels), small)
            with graph.inserting_after(result if rows is scale else rows):
                factor = _rows(graph, rows, result)
            with graph.inserting_after(factor):
                scaled = call(graph, ATEN.mul.Tensor, (result, factor), result.meta["val"])
            for user in [user for user in result.users if user not in {factor, scaled}]:
                user.replace_input_with(result, scaled)


def _scale_and_shift(graph: fx.Graph, norm: fx.Node, bias: fx.Node | None) -> tuple[fx.Node, fx.Node]:
    """Insert s = γ / σ and β + s (b − μ)."""
    args: Any = norm.args
    _, gain, offset, mean, variance, _, _, eps = args
    small = variance.meta["val"]
    scale = call(graph, ATEN.rsqrt.default, (call(graph, ATEN.add.Scalar, (variance, eps), small),), small)
    if gain is not None:
        scale = call(graph, ATEN.mul.Tensor, (scale, gain), small)
    centre = call(graph, ATEN.neg.default, (mean,), small)
    if bias is not None:
        centre = call(graph, ATEN.add.Tensor, (centre, bias), small)
    shift = call(graph, ATEN.mul.Tensor, (centre, scale), small)
    return scale, shift if offset is None else call(graph, ATEN.add.Tensor, (shift, offset), small)


def _unread(graph: fx.Graph, node: fx.Node) -> None:
    """Let the gradient of a convolution's input not read that input, where no gradient of the weight is asked for.

    With a stride of 1 it is the result's gradient convolved with the kernel turned round. Else the operator gets memory
    that is never written: it looks at the shape alone.
    """
    args: Any = node.args
    gradient, value, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args
    if wanted[1]:
        return
    if wanted[2]:
        for item in items_of(node, 2):  # the bias's
            item.replace_all_uses_with(_summed(graph, node, gradient, item.meta["val"]))
        wanted = [wanted[0], False, False]
        node.args = (*args[:10], wanted)
    if not wanted[0]:
        return
    outputs, inputs, *kernel = weight.meta["val"].shape
    over = [step * (size - 1) - pad for step, size, pad in zip(dilation, kernel, padding, strict=True)]
    single = inputs == 1 and outputs == groups
    if transposed or set(stride) != {1} or min(over) < 0 or not (groups == 1 or single):
        traced = value.meta["val"]
        with graph.inserting_before(node):
            shape = (list(traced.shape), list(traced.stride()))
            settings = {"dtype": traced.dtype, "device": torch.device("cpu"), "pin_memory": False}
            stand_in = graph.call_function(ATEN.empty_strided.default, shape, settings)
        stand_in.meta = {"val": traced, "unwritten": True}
        node.args = (gradient, stand_in, *node.args[2:])
        return
    with graph.inserting_before(node):
        turned = weight
        if set(kernel) != {1}:
            axes = list(range(2, 2 + len(kernel)))
            turned = call(graph, ATEN.flip.default, (turned, axes), turned.meta["val"])
        if groups == 1:
            turned = call(graph, ATEN.transpose.int, (turned, 0, 1), turned.meta["val"].transpose(0, 1))
        rest = ([1] * len(kernel), over, dilation, False, [0] * len(kernel), groups)
        made = call(graph, _CONVOLVED, (gradient, turned, None, *rest), value.meta["val"])
    for item in items_of(node, 0):
        item.replace_all_uses_with(made)


def _summed(graph: fx.Graph, before: fx.Node, gradient: fx.Node, value: torch.Tensor) -> fx.Node:
    """Insert the sums of a gradient over all but the channels."""
    axes = [axis for axis in range(gradient.meta["val"].ndim) if axis != 1]
    with graph.inserting_before(before):
        return call(graph, ATEN.sum.dim_IntList, (gradient, axes), value)


def _mask(graph: fx.Graph, value: fx.Node, bounds: Any) -> fx.Node:
    """Insert, right after a value, whether it is above the first of some bounds, and below the second."""
    inside = torch.empty_like(value.meta["val"], dtype=torch.bool)
    with graph.inserting_after(value):
        mask = call(graph, ATEN.gt.Scalar, (value, bounds[0]), inside)
    if len(bounds) == 1:
        return mask
    with graph.inserting_after(mask):
        below = call(graph, ATEN.lt.Scalar, (value, bounds[1]), inside)
    with graph.inserting_after(below):
        return call(graph, ATEN.bitwise_and.Tensor, (mask, below), inside)


def _rows(graph: fx.Graph, vector: fx.Node, like: fx.Node) -> fx.Node:
    """Return a vector in a shape that multiplies the rows of a tensor."""
    shape = [-1, *(1 for _ in like.meta["val"].shape[1:])]
    return call(graph, ATEN.view.default, (vector, shape), vector.meta["val"].view(shape))


def _selections(item: fx.Node) -> list[fx.Node]:
    """Return the selections of some channels that are all that reads a gradient; empty where something else does."""
    users = list(item.users)
    same = all(user.target == _SELECTED and user.args[1:] == users[0].args[1:] for user in users)
    return users if same else []


def _in_part(graph: fx.Graph) -> None:
    """Compute partly read weight gradients in part."""
    for node in graph.find_nodes(op="call_function", target=_CONVOLUTION):
        for item in items_of(node, 1):
            found = _selections(item)
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
        divided = call(graph, _CONVOLUTION, of_weight, (None, found[0].meta["val"], None))
        result = call(graph, operator.getitem, (divided, 1), found[0].meta["val"])
    for selection in found:
        selection.replace_all_uses_with(result)
    node.args = (*args[:10], [wanted[0], False, wanted[2]])


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
