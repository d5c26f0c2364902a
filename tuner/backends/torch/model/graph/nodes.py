"""The model as a chain: cut points of the traced graph, and the blocks between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import fx, nn

from tuner.backends.torch.model.graph.grouping import Block, blocks_of
from tuner.backends.torch.model.graph.layout import guard_group_norms
from tuner.backends.torch.model.graph.tracing import RefusalError, traced
from tuner.errors import first_line

#: Largest difference of two ways to compute the same, absolute and relative.
SAME = 1e-3


@dataclass(frozen=True, eq=False)
class Chain:
    """A traced model and where it can be cut.

    Attributes:
        module: The traced model; shares the given model's weights.
        cuts: Positions of nodes after which exactly one tensor crosses, the last node not among them.
        blocks: Blocks, in order.
        traced_by: How the model was traced, for people.
    """

    module: fx.GraphModule
    cuts: tuple[int, ...]
    blocks: tuple[Block, ...]
    traced_by: str

    @property
    def nodes(self) -> list[fx.Node]:
        """The graph's nodes in order."""
        return list(self.module.graph.nodes)

    def part(self, begin: int, end: int) -> fx.GraphModule:
        """Return the nodes after position `begin`, up to and with `end`, as a module that shares the weights."""
        nodes = self.nodes
        available = set(nodes[: begin + 1]) - {node for node in nodes if node.op == "get_attr"}
        graph, copies = self._copied(nodes[begin], _needed(nodes[end], available))
        graph.output(copies[nodes[end]])
        return fx.GraphModule(self.module, graph)

    def outputs(self, ends: Sequence[int], begin: int | None = None) -> fx.GraphModule:
        """Return what gives several positions' values as one module with a tuple; shares the weights.

        `begin` is a cut whose value takes the place of the model's input.
        """
        nodes = self.nodes
        start = nodes[self.blocks[0].begin if begin is None else begin]
        graph, copies = self._copied(start, set().union(*(_needed(nodes[end], {start}) for end in ends)))
        graph.output(tuple(copies[nodes[end]] for end in ends))
        return fx.GraphModule(self.module, graph)

    def split_position(self, cut: int) -> int:
        """Return the position of the cut in front of block `cut`; the last node's where nothing is left."""
        return self.blocks[cut].begin if cut < len(self.blocks) else self.blocks[-1].end

    def prefix(self, cut: int) -> fx.GraphModule:
        """Return the frozen part: blocks ``[0, cut)`` and what runs before block `cut` without parameters."""
        return _prefix(self, cut)

    def tail(self, cut: int) -> fx.GraphModule:
        """Return the trainable part: blocks ``[cut, num_blocks)``."""
        return self.part(self.split_position(cut), self.blocks[-1].end)

    def layers(self, number: int) -> dict[str, nn.Module]:
        """Return the layers of a block that have weights, by name, in order."""
        block, layers = self.blocks[number], dict[str, nn.Module]()
        for node in self.nodes[block.begin + 1 : block.end + 1]:
            if node.op == "call_module":
                layer = self.module.get_submodule(str(node.target))
                if next(layer.parameters(), None) is not None:
                    layers[str(node.target)] = layer
        return layers

    def last_width(self, number: int) -> int | None:
        """Return how many channels a block's first layer takes in the last dimension; None where it has them first."""
        layers = (layer for leaf in self.layers(number).values() for layer in leaf.modules())
        for layer in layers:
            for kind, name in ((nn.Linear, "in_features"), (nn.MultiheadAttention, "embed_dim")):
                if isinstance(layer, kind):
                    return int(getattr(layer, name))
            if next(layer.parameters(recurse=False), None) is not None:
                return int(layer.normalized_shape[-1]) if isinstance(layer, nn.LayerNorm) else None
        return None

    def _copied(self, start: fx.Node, needed: set[fx.Node]) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
        """Return a graph of some nodes whose input takes the place of `start`, and each node's copy."""
        graph, copies = fx.Graph(), {}
        copies[start] = graph.placeholder("x")
        for node in self.nodes:
            if node in needed and node not in copies:
                copies[node] = graph.node_copy(node, lambda argument: copies[argument])
        return graph, copies


@lru_cache(maxsize=128)
def _prefix(chain: Chain, cut: int) -> fx.GraphModule:
    return chain.part(chain.blocks[0].begin, chain.split_position(cut))


def chain(model: nn.Module, sample: torch.Tensor) -> Chain:
    """Trace a model of one tensor in and one out and find its blocks; `sample` is float32 [1, ...], as it takes it.

    Raises:
        RefusalError: The model cannot be traced; the message says why.
    """
    graph = traced(model, sample)
    guard_group_norms(graph.module)
    nodes = list(graph.module.graph.nodes)
    cuts = tuple(_cut_positions(nodes))
    if not cuts:
        raise RefusalError("no single tensor connects its parts")
    found = Chain(graph.module, cuts, tuple(blocks_of(graph.module, nodes, cuts)), graph.by)
    _check_parts(found, sample)
    return found


def _check_parts(whole: Chain, sample: torch.Tensor) -> None:
    """Run the blocks one after the other."""
    edges = [whole.split_position(cut) for cut in range(len(whole.blocks) + 1)]
    value = sample
    try:
        with torch.inference_mode():
            for begin, end in pairwise(edges):
                value = whole.part(begin, end).eval()(value).clone()
            same = torch.allclose(whole.module.eval()(sample), value, rtol=SAME, atol=SAME)
    except Exception as error:
        raise RefusalError(f"one of its blocks does not run by itself: {first_line(error)}") from error
    if not same:
        raise RefusalError("its blocks, one after the other, compute something else")


def _needed(last: fx.Node, available: set[fx.Node]) -> set[fx.Node]:
    """Return what must be computed for `last` when `available` nodes need not be."""
    needed, pending = set(), [last]
    while pending:
        node = pending.pop()
        if node not in needed and node not in available:
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
