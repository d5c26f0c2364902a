"""Widths of a network: which groups of channels can be added to or taken from, and which layers give and take them.

Found by tracing, for chains and residual networks of 1-D and 2-D convolutions, depthwise ones, linears and batch norms.
"""

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from tuner.backends.torch.graph import ACTIVATIONS, RANDOM, Tracer
from tuner.errors import TunerError

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
POOLS = (
    nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
#: Functions and methods that act on every channel alike.
ALIKE = frozenset({
    "relu", "relu_", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu", "dropout", "contiguous",
    "clone", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
})  # fmt: skip
#: Functions of two tensors whose channels must agree: what they join is one group.
JOINS = frozenset({"add", "add_", "iadd", "sub", "mul", "imul"})
#: What gives a number of the shape and no channels.
NUMBERS = frozenset({"size", "getattr", "getitem", "dim"})
CHANNELS = 1


class WidthError(TunerError):
    """No width of the tail can change."""


@dataclass(frozen=True, slots=True)
class Width:
    """A group of channels that can grow: all its layers change together.

    Attributes:
        name: Of the first module that gives the channels.
        size: How many there are.
        givers: Convolutions and linears whose outputs they are.
        along: Depthwise convolutions, which keep them.
        norms: Batch norms over them.
        takers: Convolutions and linears that read them; a linear after a flattening reads several positions of each.
    """

    name: str
    size: int
    givers: tuple[str, ...]
    along: tuple[str, ...]
    norms: tuple[str, ...]
    takers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Widths:
    """What can grow, from the input to the output, and what cannot: the first module's name and the reason."""

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
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise WidthError(f"growth wants a model that torch.fx can trace, but {reason}: use freeze alone") from None
    return fx.GraphModule(tail, graph)


def find(body: fx.GraphModule) -> Widths:
    """Return the widths of a traced network."""
    return _Search(body).widths()


def channels(weight: torch.Tensor, size: int) -> torch.Tensor:
    """Return a taker's weights by channel: [outputs, size, weights of one pair]."""
    return weight.reshape(weight.shape[0], size, -1)


def flat(blocks: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `channels`' result in the layout of the weight it came from, whatever its width is now."""
    return blocks.reshape(blocks.shape[0], -1, *like.shape[2:])


def selected(body: nn.Module, width: Width, indices: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return the tensors of a network that keeps only some channels of a width, by name."""
    keep = torch.as_tensor(indices, dtype=torch.long)
    changes: dict[str, torch.Tensor] = {}
    for name in (*width.givers, *width.along, *width.norms):
        module = body.get_submodule(name)
        for leaf, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if value.ndim:
                changes[f"{name}.{leaf}"] = value.detach()[keep].clone()
    for name in width.takers:
        weight = changes.get(f"{name}.weight", weight_of(body, name))
        changes[f"{name}.weight"] = flat(channels(weight, width.size)[:, keep], weight).clone()
    return changes


def weight_of(body: nn.Module, name: str) -> torch.Tensor:
    """Return a module's weight, detached."""
    return body.get_submodule(name).get_parameter("weight").detach()


def install(
    body: nn.Module, changes: Mapping[str, torch.Tensor], optimiser: torch.optim.Optimizer | None = None
) -> None:
    """Put tensors of other shapes in the place of a network's own; an optimiser's state keeps its leading block.

    Args:
        body: The network.
        changes: New tensors by name, parameters and buffers.
        optimiser: That updates the parameters.
    """
    for name, value in changes.items():
        path, _, leaf = name.rpartition(".")
        module = body.get_submodule(path)
        old = module._parameters.get(leaf)  # noqa: SLF001 - where torch itself keeps them
        if old is None:
            module._buffers[leaf] = value  # noqa: SLF001 - the same
        else:
            layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format  # noqa: PLR2004 - maps
            # a copy, as `contiguous` leaves the strides of one-channel maps, by which kernels are chosen
            new = nn.Parameter(value.clone(memory_format=layout), requires_grad=old.requires_grad)
            module._parameters[leaf] = new  # noqa: SLF001 - the same
            if optimiser is not None:
                _handed_over(optimiser, old, new)
        _renumber(module)


def resize(body: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Give every tensor of a network the shape it has in a state dictionary."""
    own = body.state_dict()
    install(body, {name: torch.zeros_like(value) for name, value in state.items() if own[name].shape != value.shape})


def _handed_over(optimiser: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter) -> None:
    for group in optimiser.param_groups:
        group["params"] = [new if one is old else one for one in group["params"]]
    state = optimiser.state.pop(old, None)
    if state is not None:
        optimiser.state[new] = {
            name: _leading(value, old, new) if isinstance(value, torch.Tensor) and value.shape == old.shape else value
            for name, value in state.items()
        }


def _leading(value: torch.Tensor, old: nn.Parameter, new: nn.Parameter) -> torch.Tensor:
    block = tuple(slice(min(a, b)) for a, b in zip(old.shape, new.shape, strict=True))
    grown = torch.zeros_like(new, requires_grad=False)
    grown[block] = value[block]
    return grown


def _renumber(module: nn.Module) -> None:
    """Set a module's own counts from its weight."""
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, CONVOLUTIONS):
        module.out_channels = module.weight.shape[0]
        if module.groups > 1:
            module.groups = module.out_channels
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, NORMS) and module.weight is not None:
        module.num_features = len(module.weight)


@dataclass(frozen=True, slots=True)
class _Value:
    """A node's channels: their group, and whether they lie in the last axis, flattened."""

    group: int
    flat: bool


class _Search:
    """Follows channels through a graph, node by node."""

    def __init__(self, body: fx.GraphModule) -> None:
        self._body = body
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}
        self._parts: list[tuple[str, str, int]] = []  # (giver, along, norm or taker; module; group), in order
        self._values: dict[fx.Node, _Value] = {}
        calls = Counter(str(node.target) for node in body.graph.nodes if node.op == "call_module")
        self._shared = {name for name, count in calls.items() if count > 1}

    def widths(self) -> Widths:
        """Return what was found."""
        for node in self._body.graph.nodes:
            value = self._visit(node)
            if value is not None:
                self._values[node] = value
        growable, fixed = [], []
        for root in dict.fromkeys(self._find(group) for role, _, group in self._parts if role == "giver"):
            made = self._width(root)
            reason = next((why for group, why in self._reasons.items() if self._find(group) == root), "")
            reason = reason or self._misfit(made)
            if reason:
                fixed.append((made.name, reason))
            else:
                growable.append(made)
        return Widths(tuple(growable), tuple(fixed))

    def _width(self, root: int) -> Width:
        def of(role: str) -> tuple[str, ...]:
            return tuple(name for part, name, group in self._parts if part == role and self._find(group) == root)

        givers = of("giver")
        return Width(givers[0], len(weight_of(self._body, givers[0])), givers, of("along"), of("norm"), of("taker"))

    def _misfit(self, width: Width) -> str:
        for name in width.takers:
            inputs = weight_of(self._body, name).shape[1]
            if inputs % width.size:
                return f"{name} has {inputs} inputs, which {width.size} channels do not divide"
        return "" if width.takers else "nothing reads it"

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
        given = [self._values[one] for one in node.all_input_nodes if one in self._values]
        if node.op == "placeholder":
            return _Value(self._new("its width is the tail's input's"), flat=False)
        if node.op == "call_module":
            return self._module(node, given)
        if node.op == "output":
            self._fix(given, "it is the model's output")
        if node.op not in {"call_function", "call_method"} or not given:
            return None
        return self._function(node, given)

    def _module(self, node: fx.Node, given: list[_Value]) -> _Value:
        name, module = str(node.target), self._body.get_submodule(str(node.target))
        if name in self._shared or len(given) != 1:
            return self._stop(
                given, f"{name} is used more than once" if name in self._shared else f"{name} is no layer"
            )
        value = given[0]
        if isinstance(module, CONVOLUTIONS):
            return self._convolution(name, module, value)
        if isinstance(module, nn.Linear):
            return self._linear(name, value)
        if isinstance(module, NORMS):
            self._parts.append(("norm", name, value.group))
        elif isinstance(module, nn.Flatten) and module.start_dim == CHANNELS:
            value = _Value(value.group, flat=True)
        elif not isinstance(module, (*ACTIVATIONS, *RANDOM, *POOLS)) or getattr(module, "num_parameters", 1) > 1:
            return self._stop(given, f"{name} ({type(module).__name__}) has a width of its own")
        return value

    def _convolution(self, name: str, module: nn.Conv1d | nn.Conv2d, value: _Value) -> _Value:
        if module.groups == 1:
            self._parts.append(("taker", name, value.group))
            return self._given(name)
        if module.groups == module.in_channels == module.out_channels:
            self._parts.append(("along", name, value.group))
            return value
        self._fix([value], f"{name} is a grouped convolution")
        made = self._given(name)
        self._fix([made], f"{name} is a grouped convolution")
        return made

    def _linear(self, name: str, value: _Value) -> _Value:
        from_map = not value.flat and any(group == value.group for role, _, group in self._parts if role == "giver")
        if from_map:
            self._fix([value], f"{name} reads the last axis of a map")
        self._parts.append(("taker", name, value.group))
        made = _Value(self._given(name).group, flat=True)
        if from_map:
            self._fix([made], f"{name} reads the last axis of a map")
        return made

    def _given(self, name: str) -> _Value:
        group = self._new()
        self._parts.append(("giver", name, group))
        return _Value(group, flat=False)

    def _function(self, node: fx.Node, given: list[_Value]) -> _Value | None:
        name = str(getattr(node.target, "__name__", node.target))
        if name in NUMBERS or node.target is operator.getitem:
            return None
        if name in JOINS and len(given) == len(node.all_input_nodes):
            first, *others = given
            for other in others:
                self._parents[self._find(other.group)] = self._find(first.group)
            return first
        if name in ALIKE:
            return given[0]
        if name in {"flatten", "view", "reshape"} and _flattens(node, name):
            return _Value(given[0].group, flat=True)
        if name == "mean" and _over_positions(node):
            return _Value(given[0].group, flat=True)
        return self._stop(given, f"{node.name} ({name}) cannot be followed")

    def _stop(self, given: list[_Value], reason: str) -> _Value:
        self._fix(given, reason)
        return _Value(self._new(reason), flat=False)

    def _fix(self, given: list[_Value], reason: str) -> None:
        for value in given:
            self._reasons.setdefault(value.group, reason)


def _flattens(node: fx.Node, name: str) -> bool:
    """Return whether everything behind the batch becomes one axis."""
    rest = node.args[1:]
    if name == "flatten":
        return (rest == (CHANNELS,) and not node.kwargs) or (not rest and node.kwargs == {"start_dim": CHANNELS})
    return len(rest) == 2 and isinstance(rest[0], fx.Node) and bool(rest[1] == -1)  # noqa: PLR2004 - batch and rest


def _over_positions(node: fx.Node) -> bool:
    axes = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if node.kwargs.get("keepdim") or len(node.args) > 2:  # noqa: PLR2004 - tensor, axes, keepdim
        return False
    return axes in {(2, 3), (-2, -1), (-1, -2), (2,), 2} or axes in ([2, 3], [-2, -1], [-1, -2], [2])
