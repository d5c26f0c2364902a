"""The model as a chain: cut points of the traced graph, and the blocks between them."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm)  # noqa: SLF001 - torch has no public base class of its norms
BARE = (nn.Linear, nn.modules.conv._ConvNd)  # noqa: SLF001 - torch has no public base class of its convolutions
RANDOM = (nn.modules.dropout._DropoutNd,)  # noqa: SLF001 - torch has no public base class of its dropouts
ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid,
    nn.Tanh, nn.Mish, nn.Softplus, nn.Hardtanh, nn.Identity,
)  # fmt: skip
ACTIVATION_NAMES = frozenset({"relu", "relu_", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu"})


class Tracer(fx.Tracer):
    """Traces down to torch's own modules, and to any module without parameters or children."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a call of the module stays one node."""
        if super().is_leaf_module(m, module_qualified_name):
            return True
        return (
            next(m.parameters(), None) is None and next(m.children(), None) is None and not isinstance(m, nn.Sequential)
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a range of graph positions: it begins after node `begin` and ends with node `end`.

    Attributes:
        name: Of the module or of its first module with parameters.
        begin: Position of the node whose output is the block's cut.
        end: Position of the block's last node.
        cut: Name of the node at `begin`.
    """

    name: str
    begin: int
    end: int
    cut: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A traced model and where it can be cut.

    Attributes:
        module: The traced model; shares the given model's weights.
        cuts: Positions of nodes after which exactly one tensor crosses, the last node not among them.
        blocks: In order.
    """

    module: fx.GraphModule
    cuts: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def nodes(self) -> list[fx.Node]:
        """The graph's nodes in order."""
        return list(self.module.graph.nodes)

    def part(self, begin: int, end: int) -> fx.GraphModule:
        """Return the nodes after position `begin`, up to and with `end`, as a module that shares the weights."""
        graph, made = fx.Graph(), {}
        nodes = self.nodes
        made[nodes[begin]] = graph.placeholder("x")
        wanted = _needed(nodes[end], set(nodes[: begin + 1]) - {node for node in nodes if node.op == "get_attr"})
        for node in nodes:
            if node in wanted and node not in made:
                made[node] = graph.node_copy(node, lambda given: made[given])
        graph.output(made[nodes[end]])
        return fx.GraphModule(self.module, graph)

    def outputs(self, ends: Sequence[int], begin: int | None = None) -> fx.GraphModule:
        """Return what gives several positions' values as one module with a tuple; shares the weights.

        Args:
            ends: The positions.
            begin: A cut whose value is given instead of the model's input.
        """
        graph, made = fx.Graph(), {}
        nodes = self.nodes
        given = nodes[self.blocks[0].begin if begin is None else begin]
        made[given] = graph.placeholder("x")
        known = {given}
        wanted = set().union(*(_needed(nodes[end], known) for end in ends))
        for node in nodes:
            if node in wanted and node not in made:
                made[node] = graph.node_copy(node, lambda given: made[given])
        graph.output(tuple(made[nodes[end]] for end in ends))
        return fx.GraphModule(self.module, graph)

    def split_position(self, split: int) -> int:
        """Return the position of the cut in front of block `split`; the last node's where nothing is left."""
        return self.blocks[split].begin if split < len(self.blocks) else self.blocks[-1].end

    def prefix(self, split: int) -> fx.GraphModule:
        """Return the frozen part: blocks ``[0, split)`` and what runs before block `split` without parameters."""
        return self.part(self.blocks[0].begin, self.split_position(split))

    def tail(self, split: int) -> fx.GraphModule:
        """Return the trainable part: blocks ``[split, num_blocks)``."""
        return self.part(self.split_position(split), self.blocks[-1].end)


def chain(model: nn.Module, sample: torch.Tensor) -> Chain:
    """Trace a model in evaluation mode and find its blocks.

    Args:
        model: With one tensor in and one out.
        sample: Float32 [1, ...], as the model takes it.

    Raises:
        ValueError: The model cannot be traced; the message says why.
    """
    model.eval()
    try:
        graph = Tracer().trace(model)
        module = fx.GraphModule(model, graph)
        ShapeProp(module).propagate(sample)
    except Exception as error:  # noqa: BLE001 - a user's forward may raise anything when it is traced
        raise ValueError(f"{type(error).__name__}: {error}".splitlines()[0]) from None
    graph.eliminate_dead_code()
    module.recompile()
    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    result = nodes[-1].args[0]
    if len([node for node in inputs if node.users]) != 1 or not isinstance(result, fx.Node):
        raise ValueError("it has more than one input or output")
    cuts = tuple(_cut_positions(nodes))
    blocks = tuple(_blocks(module, nodes, cuts))
    return Chain(module, cuts, blocks)


def _needed(last: fx.Node, known: set[fx.Node]) -> set[fx.Node]:
    """Return what must be computed for `last` when `known` nodes need not be."""
    needed, pending = set(), [last]
    while pending:
        node = pending.pop()
        if node not in needed and node not in known:
            needed.add(node)
            pending.extend(node.all_input_nodes)
    return needed


def _cut_positions(nodes: list[fx.Node]) -> Iterator[int]:
    """Yield positions after which exactly one value crosses, a tensor; parameters do not count."""
    position = {node: index for index, node in enumerate(nodes)}
    last_use = {node: max((position[user] for user in node.users), default=-1) for node in nodes}
    crossing: set[fx.Node] = set()
    started = False
    for index, node in enumerate(nodes[:-1]):
        crossing = {value for value in crossing if last_use[value] > index}
        if node.op == "placeholder":
            started = True
        if node.op != "get_attr" and last_use[node] > index:
            crossing.add(node)
        if started and crossing == {node} and _is_tensor(node):
            yield index


def _is_tensor(node: fx.Node) -> bool:
    return "tensor_meta" in node.meta and hasattr(node.meta["tensor_meta"], "shape")


@dataclass(slots=True)
class _Atom:
    """Nodes between two neighbouring cut points."""

    begin: int
    end: int
    nodes: list[fx.Node]


def _blocks(module: fx.GraphModule, nodes: list[fx.Node], cuts: tuple[int, ...]) -> Iterator[Block]:
    """Group atoms into blocks.

    An atom with several modules with parameters cannot be cut inside; the smallest module around it names a kind of
    module (a residual block), and every module of that kind is kept whole, so that like things are cut alike.
    """
    ends = [*cuts[1:], len(nodes) - 2] if cuts[-1] != len(nodes) - 2 else list(cuts[1:])
    atoms = [_Atom(begin, end, nodes[begin + 1 : end + 1]) for begin, end in zip(cuts, ends, strict=False)]
    whole = {kind for atom in atoms if (kind := _kind_around(module, atom)) is not None}
    groups = _by_module(atoms, whole)
    merged = _by_role(module, groups)
    for group in merged:
        first = _first_active(module, [node for atom in group for node in atom.nodes])
        position = nodes.index(first) if first is not None else group[0].begin + 1
        begin = max((cut for cut in cuts if cut < position and cut >= group[0].begin), default=group[0].begin)
        yield Block(_name(module, group, whole), begin, group[-1].end, nodes[begin].name)


def _stack(node: fx.Node) -> list[tuple[str, type]]:
    stack = node.meta.get("nn_module_stack") or {}
    return [(entry[0], entry[1]) for entry in stack.values() if entry[0]]


def _parametric(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "get_attr":
        return isinstance(operator.attrgetter(str(node.target))(module), nn.Parameter)
    return node.op == "call_module" and next(module.get_submodule(str(node.target)).parameters(), None) is not None


def _kind_around(module: fx.GraphModule, atom: _Atom) -> type | None:
    """Return the class of the smallest module around an atom of several modules with parameters."""
    if sum(_parametric(module, node) for node in atom.nodes) < 2:  # noqa: PLR2004 - "several"
        return None
    common: list[tuple[str, type]] | None = None
    for node in atom.nodes:
        if node.op == "get_attr":
            continue
        stack = _stack(node)
        if node.op == "call_module":
            stack = [entry for entry in stack if entry[0] != node.target]
        common = stack if common is None else [entry for entry in common if entry in stack]
    if not common:
        return None
    kind = common[-1][1]
    return None if isinstance(kind, type) and kind.__module__.startswith("torch.nn") else kind


def _owner(node: fx.Node, whole: set[Any]) -> str | None:
    """Return the path of the outermost module around a node that is kept whole."""
    return next((path for path, kind in _stack(node) if kind in whole), None)


def _by_module(atoms: list[_Atom], whole: set[Any]) -> list[list[_Atom]]:
    groups: list[list[_Atom]] = []
    owner_before: str | None = None
    for atom in atoms:
        owners = {_owner(node, whole) for node in atom.nodes if node.op != "get_attr"}
        owner = owners.pop() if len(owners) == 1 else None
        if groups and owner is not None and owner == owner_before:
            groups[-1].append(atom)
        else:
            groups.append([atom])
        owner_before = owner
    return groups


def _by_role(module: fx.GraphModule, groups: list[list[_Atom]]) -> list[list[_Atom]]:
    """Join norms and activations to the convolution or linear before them, and other runs to the block after."""
    merged: list[list[_Atom]] = []
    waiting: list[_Atom] = []
    open_block = False  # whether the last block is a bare convolution or linear that may take its norm and activation
    for group in groups:
        parametric = [node for atom in group for node in atom.nodes if _parametric(module, node)]
        if open_block and len(group) == 1 and not waiting and _follows(module, group[0]):
            merged[-1].extend(group)
        elif merged and parametric and all(node.op == "get_attr" for node in parametric):
            merged[-1].extend((*waiting, *group))  # a class token or a position embedding is part of the stem
            waiting = []
        elif not parametric or all(_is(module, node, NORMS) for node in parametric):
            waiting.extend(group)
            open_block = False
        else:
            merged.append([*waiting, *group])
            waiting = []
            open_block = len(parametric) == 1 and _is(module, parametric[0], BARE)
    if waiting and merged:
        merged[-1].extend(waiting)
    elif waiting:
        merged.append(waiting)
    return merged


def _is(module: fx.GraphModule, node: fx.Node, kinds: tuple[type, ...]) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), kinds)


def _follows(module: fx.GraphModule, atom: _Atom) -> bool:
    """Return whether an atom is a norm or an activation."""
    return all(
        _is(module, node, NORMS + ACTIVATIONS)
        or (
            node.op in {"call_function", "call_method"}
            and getattr(node.target, "__name__", str(node.target)) in ACTIVATION_NAMES
        )
        for node in atom.nodes
    )


def _first_active(module: fx.GraphModule, nodes: list[fx.Node]) -> fx.Node | None:
    """Return the first node that has parameters or is random: what runs before it may run in the prefix."""
    for node in nodes:
        if _parametric(module, node):
            return node if node.op != "get_attr" else next(iter(node.users))
        if _is(module, node, RANDOM):
            return node
    return None


def _name(module: fx.GraphModule, group: list[_Atom], whole: set[Any]) -> str:
    nodes = [node for atom in group for node in atom.nodes]
    for node in nodes:
        if _parametric(module, node):
            return _owner(node, whole) or str(node.target)
    return nodes[-1].name if nodes else "model"
