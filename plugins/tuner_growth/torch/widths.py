"""Widths of a network: groups of channels that can be added or removed together, and the layers they belong to.

They are derived from the traced graph, for chains and residual networks of 1-D and 2-D convolutions, depthwise ones,
linears and batch norms.
"""

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from tuner.backends.torch.model.graph.kinds import ACTIVATIONS, RANDOM
from tuner.backends.torch.model.graph.tracing import Tracer
from tuner.backends.torch.model.resize import BATCH_NORMS, CONVOLUTIONS
from tuner.errors import first_line
from tuner.plugin import TunerError

POOLS = (
    nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
#: Functions and methods that act on every channel alike.
CHANNELWISE = frozenset({
    "relu", "relu_", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu", "dropout", "contiguous",
    "clone", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
})  # fmt: skip
#: Functions of two tensors whose channels must agree: both belong to one group.
JOINS = frozenset({"add", "add_", "iadd", "sub", "mul", "imul"})
#: Functions and methods whose results are numbers of the shape and have no channels.
NUMBERS = frozenset({"size", "getattr", "getitem", "dim"})
CHANNELS = 1


class WidthError(TunerError):
    """No width of the tail can change."""


@dataclass(frozen=True, slots=True)
class Width:
    """A group of channels that can grow: all its layers change together.

    Attributes:
        name: Name of the first module that produces the channels.
        size: Number of channels.
        producers: Convolutions and linears whose outputs are the channels.
        depthwise: Depthwise convolutions over them.
        norms: Batch norms over them.
        consumers: Convolutions and linears that read them; a linear after a flattening reads several positions of each.
    """

    name: str
    size: int
    producers: tuple[str, ...]
    depthwise: tuple[str, ...]
    norms: tuple[str, ...]
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths of a network, from the input to the output.

    Attributes:
        growable: Widths that can change.
        fixed: Name of the first module of each other width, and the reason why it cannot change.
    """

    growable: tuple[Width, ...]
    fixed: tuple[tuple[str, str], ...]


def traced(tail: nn.Module) -> fx.GraphModule:
    """Return a tail as a graph that shares its modules.

    Raises:
        WidthError: It cannot be traced.
    """
    try:
        graph = Tracer().trace(tail)
    except Exception as error:  # noqa: BLE001 - a user's forward may raise anything when it is traced
        reason = first_line(error)
        raise WidthError(
            f"growth needs a model that torch.fx can trace, but {reason}: set growth.mode to none"
        ) from None
    return fx.GraphModule(tail, graph)


def find(body: fx.GraphModule) -> Widths:
    """Return the widths of a traced network."""
    return _Search(body).widths()


def channels(weight: torch.Tensor, size: int) -> torch.Tensor:
    """Return a consumer's weights by channel: [outputs, size, weights of one pair]."""
    return weight.reshape(weight.shape[0], size, -1)


def flat(blocks: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `channels`' result in the layout of the weight it came from, whatever its width is now."""
    return blocks.reshape(blocks.shape[0], -1, *like.shape[2:])


def selected(body: nn.Module, width: Width, indices: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return the tensors of a network that keeps only some channels of a width, by name."""
    keep = torch.as_tensor(indices, dtype=torch.long)
    tensors: dict[str, torch.Tensor] = {}
    for name in (*width.producers, *width.depthwise, *width.norms):
        module = body.get_submodule(name)
        for leaf, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if value.ndim:
                tensors[f"{name}.{leaf}"] = value.detach()[keep].clone()
    for name in width.consumers:
        weight = tensors.get(f"{name}.weight", weight_of(body, name))
        tensors[f"{name}.weight"] = flat(channels(weight, width.size)[:, keep], weight).clone()
    return tensors


def weight_of(body: nn.Module, name: str) -> torch.Tensor:
    """Return a module's weight, detached."""
    return body.get_submodule(name).get_parameter("weight").detach()


@dataclass(frozen=True, slots=True)
class _Value:
    """A node's channels.

    Attributes:
        group: Number of their group.
        flat: Whether they lie in the last axis, flattened.
    """

    group: int
    flat: bool


class _Search:
    """Follows channels through a graph, node by node."""

    def __init__(self, body: fx.GraphModule) -> None:
        self._body = body
        self._parents: list[int] = []  # of groups, as in a union-find forest
        self._reasons: dict[int, str] = {}  # why a group's width cannot change
        self._roles: list[tuple[str, str, int]] = []  # a role in `Width`, a module and its group, in order
        self._values: dict[fx.Node, _Value] = {}
        calls = Counter(str(node.target) for node in body.graph.nodes if node.op == "call_module")
        self._shared = {name for name, count in calls.items() if count > 1}

    def widths(self) -> Widths:
        """Visit every node; return all widths."""
        for node in self._body.graph.nodes:
            value = self._visit(node)
            if value is not None:
                self._values[node] = value
        growable, fixed = [], []
        for root in dict.fromkeys(self._find(group) for role, _, group in self._roles if role == "producer"):
            width = self._width(root)
            reason = next((why for group, why in self._reasons.items() if self._find(group) == root), "")
            reason = reason or self._misfit(width)
            if reason:
                fixed.append((width.name, reason))
            else:
                growable.append(width)
        return Widths(tuple(growable), tuple(fixed))

    def _width(self, root: int) -> Width:
        def modules(wanted: str) -> tuple[str, ...]:
            return tuple(name for role, name, group in self._roles if role == wanted and self._find(group) == root)

        producers = modules("producer")
        return Width(
            name=producers[0],
            size=len(weight_of(self._body, producers[0])),
            producers=producers,
            depthwise=modules("depthwise"),
            norms=modules("norm"),
            consumers=modules("consumer"),
        )

    def _misfit(self, width: Width) -> str:
        for name in width.consumers:
            inputs = weight_of(self._body, name).shape[1]
            if inputs % width.size:
                return f"{name} has {inputs} inputs, which is not a multiple of the {width.size} channels before it"
        return "" if width.consumers else "nothing reads it"

    def _new(self, reason: str = "") -> int:
        self._parents.append(len(self._parents))
        if reason:
            self._reasons[len(self._parents) - 1] = reason
        return len(self._parents) - 1

    def _find(self, group: int) -> int:
        while self._parents[group] != group:
            group = self._parents[group]
        return group

    def _visit(self, node: fx.Node) -> _Value | None:
        inputs = [self._values[source] for source in node.all_input_nodes if source in self._values]
        if node.op == "placeholder":
            return _Value(self._new("it has the width of the tail's input"), flat=False)
        if node.op == "call_module":
            return self._module(node, inputs)
        if node.op == "output":
            self._fix(inputs, "it is the model's output")
        if node.op not in {"call_function", "call_method"} or not inputs:
            return None
        return self._function(node, inputs)

    def _module(self, node: fx.Node, inputs: list[_Value]) -> _Value:
        name, module = str(node.target), self._body.get_submodule(str(node.target))
        if name in self._shared:
            return self._stop(inputs, f"{name} is used more than once")
        if len(inputs) != 1:
            return self._stop(inputs, f"{name} does not have exactly one input")
        value = inputs[0]
        if isinstance(module, CONVOLUTIONS):
            return self._convolution(name, module, value)
        if isinstance(module, nn.Linear):
            return self._linear(name, value)
        if isinstance(module, BATCH_NORMS):
            self._roles.append(("norm", name, value.group))
        elif isinstance(module, nn.Flatten) and module.start_dim == CHANNELS:
            value = _Value(value.group, flat=True)
        elif not isinstance(module, (*ACTIVATIONS, *RANDOM, *POOLS)) or getattr(module, "num_parameters", 1) > 1:
            return self._stop(inputs, f"{name} ({type(module).__name__}) has a width of its own")
        return value

    def _convolution(self, name: str, module: nn.Conv1d | nn.Conv2d, value: _Value) -> _Value:
        if module.groups == 1:
            self._roles.append(("consumer", name, value.group))
            return self._produced(name)
        if module.groups == module.in_channels == module.out_channels:
            self._roles.append(("depthwise", name, value.group))
            return value
        self._fix([value], f"{name} is a grouped convolution")
        result = self._produced(name)
        self._fix([result], f"{name} is a grouped convolution")
        return result

    def _linear(self, name: str, value: _Value) -> _Value:
        reads_map = not value.flat and any(group == value.group for role, _, group in self._roles if role == "producer")
        if reads_map:
            self._fix([value], f"{name} reads the last axis of a map")
        self._roles.append(("consumer", name, value.group))
        result = _Value(self._produced(name).group, flat=True)
        if reads_map:
            self._fix([result], f"{name} reads the last axis of a map")
        return result

    def _produced(self, name: str) -> _Value:
        group = self._new()
        self._roles.append(("producer", name, group))
        return _Value(group, flat=False)

    def _function(self, node: fx.Node, inputs: list[_Value]) -> _Value | None:
        name = str(getattr(node.target, "__name__", node.target))
        if name in NUMBERS or node.target is operator.getitem:
            return None
        if name in JOINS and len(inputs) == len(node.all_input_nodes):
            first, *others = inputs
            for other in others:
                self._parents[self._find(other.group)] = self._find(first.group)
            return first
        if name in CHANNELWISE:
            return inputs[0]
        if name in {"flatten", "view", "reshape"} and _flattens(node, name):
            return _Value(inputs[0].group, flat=True)
        if name == "mean" and _over_positions(node):
            return _Value(inputs[0].group, flat=True)
        return self._stop(inputs, f"growth cannot follow channels through {node.name} ({name})")

    def _stop(self, inputs: list[_Value], reason: str) -> _Value:
        """Fix the widths of the inputs, and return a value of another fixed width."""
        self._fix(inputs, reason)
        return _Value(self._new(reason), flat=False)

    def _fix(self, values: list[_Value], reason: str) -> None:
        for value in values:
            self._reasons.setdefault(value.group, reason)


def _flattens(node: fx.Node, name: str) -> bool:
    """Return whether everything behind the batch becomes one axis."""
    rest = node.args[1:]
    if name == "flatten":
        return (rest == (CHANNELS,) and not node.kwargs) or (not rest and node.kwargs == {"start_dim": CHANNELS})
    return len(rest) == 2 and isinstance(rest[0], fx.Node) and bool(rest[1] == -1)  # noqa: PLR2004 - batch and rest


def _over_positions(node: fx.Node) -> bool:
    """Return whether a mean is taken over all positions of a map."""
    axes = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if node.kwargs.get("keepdim") or len(node.args) > 2:  # noqa: PLR2004 - tensor, axes, keepdim
        return False
    return axes in {(2, 3), (-2, -1), (-1, -2), (2,), 2} or axes in ([2, 3], [-2, -1], [-1, -2], [2])
