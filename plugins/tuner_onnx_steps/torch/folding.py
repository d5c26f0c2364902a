"""Frozen batch norms folded into the convolutions before them, forward and backward.

With x = w ∗ a + b and y = γ (x − μ) / σ + β, where μ and σ are given, y = (s w) ∗ a + (β + s (b − μ)) with s = γ / σ.
Let g be the gradient of y and G = Σ g a over the samples and places that w slides over. Then the gradients are: of a, g
convolved with s w; of w, s G; of b, s Σ g; of β, Σ g; and of γ, as Σ g x = ⟨w, G⟩ + b Σ g for every output channel,

    Σ g (x − μ) / σ = (⟨w, G⟩ + (b − μ) Σ g) / σ.

So neither x nor a map scaled by s is ever made: passes over maps become passes over weights.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tuner_onnx_steps.torch.convolution import convolved, input_gradient, slid, weight_gradient
from tuner_onnx_steps.torch.graph import Graph, Value, shape_of

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Fold:
    """A convolution and the frozen norm after it, forward and backward."""

    convolution: fx.Node
    norm: fx.Node
    norm_backward: fx.Node
    convolution_backward: fx.Node

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """All four."""
        return self.convolution, self.norm, self.norm_backward, self.convolution_backward


class Folds:
    """The folds of a traced step, and how they are lowered."""

    def __init__(self, traced: fx.GraphModule) -> None:
        folds = (_fold(node) for node in traced.graph.nodes if node.target == aten.convolution.default)
        self._by_node: Mapping[fx.Node, Fold] = {node: fold for fold in folds if fold for node in fold.nodes}
        self._folded: dict[Fold, tuple[str, str, str]] = {}
        self._gradients: dict[fx.Node, Value] = {}

    def __contains__(self, node: fx.Node) -> bool:
        return node in self._by_node

    def lower(self, graph: Graph, node: fx.Node) -> Value:
        """Add the nodes of one of a fold's four; return the names of its results."""
        fold = self._by_node[node]
        if node is fold.norm:
            return self._forward(graph, fold)
        if node is fold.norm_backward:
            return self._backward(graph, fold)
        return self._gradients.get(node, ())  # a convolution without its norm has no results

    def _forward(self, graph: Graph, fold: Fold) -> Value:
        args: Any = fold.convolution.args
        _, weight, bias, *_ = args
        scale_args: Any = fold.norm.args
        _, gain, offset, mean, variance, *_, eps = scale_args
        inverse = graph.op("Reciprocal", graph.op("Sqrt", graph.op("Add", graph.of(variance), graph.of(eps))))
        scale = inverse if gain is None else graph.op("Mul", graph.of(gain), inverse)
        centre = graph.op("Neg", graph.of(mean)) if bias is None else graph.op("Sub", graph.of(bias), graph.of(mean))
        shift = graph.op("Mul", centre, scale)
        shift = shift if offset is None else graph.op("Add", shift, graph.of(offset))
        folded = graph.op("Mul", graph.of(weight), graph.reshape(scale, _wide(weight)))
        self._folded[fold] = folded, inverse, centre
        return convolved(graph, fold.convolution, folded, shift), None, None

    def _backward(self, graph: Graph, fold: Fold) -> Value:
        folded, inverse, centre = self._folded[fold]
        args: Any = fold.convolution_backward.args
        _, value, weight, *_, groups, wanted = args
        gradient = fold.norm_backward.args[0]
        gain: Any = fold.norm.args[1]
        if not isinstance(gradient, fx.Node):
            raise TypeError(f"{fold.norm_backward} has a gradient")
        window = slid(fold.convolution)
        outputs, rest = shape_of(weight)[0], list(range(1, len(shape_of(weight))))
        of_value = input_gradient(graph, gradient, value, weight, folded, window, groups) if wanted[0] else None
        raw = weight_gradient(graph, gradient, value, weight, window, groups)
        whole = graph.sum(graph.of(gradient), [0, *range(2, len(shape_of(gradient)))])
        scale = inverse if gain is None else graph.op("Mul", graph.of(gain), inverse)
        of_weight = graph.op("Mul", raw, graph.reshape(scale, (outputs, *(1 for _ in rest))))
        of_bias = graph.op("Mul", whole, scale) if wanted[2] else None
        self._gradients[fold.convolution_backward] = of_value, of_weight, of_bias
        along = graph.sum(graph.op("Mul", graph.of(weight), raw), rest)
        of_gain = graph.op("Mul", graph.op("Add", along, graph.op("Mul", centre, whole)), inverse)
        return graph.of(gradient), of_gain, whole


def _wide(weight: fx.Node) -> tuple[int, ...]:
    outputs, *rest = shape_of(weight)
    return (outputs, *(1 for _ in rest))


def _fold(convolution: fx.Node) -> Fold | None:
    """Return the fold that begins with a convolution, if nothing else reads what it does away with."""
    norms = [user for user in convolution.users if user.target == aten.native_batch_norm.default]
    backward = [user for user in convolution.users if user.target == aten.native_batch_norm_backward.default]
    frozen = all(not norm.args[5] for norm in norms) and all(not norm.args[7] for norm in backward)
    if convolution.args[6] or not frozen or (len(norms), len(backward), len(convolution.users)) != (1, 1, 2):
        return None
    scaled = [user for user in backward[0].users if user.target is operator.getitem and user.args[1] == 0]
    ends = [user for gradient in scaled for user in gradient.users]
    if len(ends) != 1 or ends[0].target != aten.convolution_backward.default or ends[0].args[0] not in scaled:
        return None
    same = ends[0].args[1:3] == convolution.args[:2]
    return Fold(convolution, norms[0], backward[0], ends[0]) if same else None
