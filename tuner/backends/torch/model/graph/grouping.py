"""The blocks of a traced model: what lies between its cut points, grouped by module and by role."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from tuner.backends.torch.model.graph.kinds import ACTIVATION_NAMES, ACTIVATIONS, BARE, NORMS, RANDOM


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a range of graph positions: it begins after node `begin` and ends with node `end`.

    Attributes:
        name: Name of the module, or of its first module with parameters.
        begin: Position of the node whose output is the block's cut.
        end: Position of the block's last node.
        cut: Name of the node at `begin`.
    """

    name: str
    begin: int
    end: int
    cut: str


@dataclass(slots=True)
class _Atom:
    """Nodes between two neighbouring cut points."""

    begin: int
    end: int
    nodes: list[fx.Node]


def blocks_of(module: fx.GraphModule, nodes: list[fx.Node], cuts: tuple[int, ...]) -> Iterator[Block]:
    """Group what is between cuts, positions of nodes after which exactly one tensor crosses, into blocks.

    An atom with several modules with parameters cannot be cut inside; the smallest module around it names a kind of
    module (a residual block), and every module of that kind is kept whole, so that like things are cut alike.
    """
    ends = [*cuts[1:], len(nodes) - 2] if cuts[-1] != len(nodes) - 2 else list(cuts[1:])
    atoms = [_Atom(begin, end, nodes[begin + 1 : end + 1]) for begin, end in zip(cuts, ends, strict=False)]
    whole = {kind for atom in atoms if (kind := _kind_around(module, atom)) is not None}
    groups = _by_module(atoms, whole)
    merged = _by_role(module, groups)
    for number, group in enumerate(merged):
        first = _first_active(module, [node for atom in group for node in atom.nodes])
        position = nodes.index(first) if first is not None else group[0].begin + 1
        begin = max((cut for cut in cuts if cut < position and cut >= group[0].begin), default=group[0].begin)
        begin = begin if number else group[0].begin  # what runs before the first block is a part of it
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
