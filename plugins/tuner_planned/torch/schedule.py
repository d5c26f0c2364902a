"""The order in which a traced step runs: every weight is updated as soon as nothing needs its old value.

Traced, a step computes all updates last, so that every gradient is alive at once. Here each runs right after its
gradient, and after the last reader of the weight as it was. Source: NNTrainer, arXiv 2206.04688, section 4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from tuner.backends.torch.step.traced import EAGERLY, Step, StepError
from tuner.plan.parts import RecipePlan
from tuner_planned.torch.frozen import with_masks, without_unread
from tuner_planned.torch.nodes import is_item, is_pointwise, readers, value_of
from tuner_planned.torch.recompute import without_cheap


@dataclass(frozen=True, slots=True)
class Update:
    """What replaces a weight and its optimiser state (or a running statistic) by their next values.

    Attributes:
        nodes: Elementwise operators, in order; empty where a value is taken over as it is.
        replaced: Input nodes that are overwritten.
        values: Node of each one's next value.
    """

    nodes: tuple[fx.Node, ...]
    replaced: tuple[fx.Node, ...]
    values: tuple[fx.Node, ...]


Item = fx.Node | Update


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A step, ready to be placed and to be turned into code.

    Attributes:
        items: What runs, in order: operators (views among them, but no items of tuples) and updates.
        loss: Node of the loss.
        ports: Port's name by input node, in the order of the step's inputs.
        kinds: Port's kind by its name.
        recipe: What the updates follow, as in `Step`.
    """

    items: tuple[Item, ...]
    loss: fx.Node
    ports: Mapping[fx.Node, str]
    kinds: Mapping[str, str]
    recipe: RecipePlan | None


def schedule(step: Step, *, again: bool = True) -> Schedule:
    """Arrange a step, which is left as it is; `again` is as for `tuner_planned.torch.program.program`."""
    for node in step.graph.graph.find_nodes(op="get_attr"):
        raise StepError(f"a planned step can hold weights and buffers only, but {node.target} is neither: {EAGERLY}")
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    results = graph.graph_copy(step.graph.graph, copies)
    graph.output(results)
    _share_masks(graph)
    without_unread(graph)
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if again:
        without_cheap(graph, _results(graph)[0])
    with_masks(graph, _results(graph)[0])
    results = _results(graph)
    by_name = {port.name: node for port, node in zip(step.inputs, inputs, strict=True)}
    sinks = {
        by_name[step.updates[port.name]]: value
        for port, value in zip(step.outputs, results, strict=True)
        if port.name in step.updates and by_name[step.updates[port.name]] is not value
    }
    names = {node: port.name for port, node in zip(step.inputs, inputs, strict=True)}
    order = tuple(_ordered(graph, _updates(graph, sinks)))
    return Schedule(order, results[0], names, {port.name: port.kind for port in step.inputs}, step.recipe)


def _results(graph: fx.Graph) -> list[fx.Node]:
    (output,) = graph.find_nodes(op="output")
    return list(output.args[0])


def _share_masks(graph: fx.Graph) -> None:
    """Let a clamp's gradient read the clamp's result: it has the same elements at the bounds as the argument has.

    The result is needed by what follows anyway; the argument then need not be kept.
    """
    for node in graph.nodes:
        if "hardtanh_backward" not in str(node.target):
            continue
        _, argument, *bounds = node.args
        for user in argument.users:
            if "hardtanh.default" in str(user.target) and list(user.args[1:]) == bounds:
                node.replace_input_with(argument, user)
                break


def _updates(graph: fx.Graph, sinks: Mapping[fx.Node, fx.Node]) -> list[Update]:
    """Return the updates: nodes joined where one feeds another or where they replace the same inputs."""
    values = set(sinks.values())
    member: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(list(graph.nodes)):
        ends = (user in member if user.op != "output" else node in values for user in node.users)
        if _elementwise(node) and all(ends):
            group = [node]
            for user in node.users:
                joined = member.get(user, group)
                if joined is not group:
                    group += joined
                    member.update(dict.fromkeys(joined, group))
            member[node] = group
    place = {node: index for index, node in enumerate(graph.nodes)}
    updates: list[Update] = []
    groups = {id(member[value]): member[value] for value in sinks.values() if value in member}
    for group in groups.values():
        mine = {port: value for port, value in sinks.items() if member.get(value) is group}
        updates.append(Update(tuple(sorted(group, key=place.__getitem__)), tuple(mine), tuple(mine.values())))
    updates += [Update((), (port,), (value,)) for port, value in sinks.items() if value not in member]
    return updates


def _elementwise(node: fx.Node) -> bool:
    """Return whether a node can run on parts of its arguments: those of its own shape are cut, others are scalars."""
    value = value_of(node)
    if node.op != "call_function" or not is_pointwise(node) or value is None or value.ndim == 0:
        return False
    values = [value_of(source) for source in node.all_input_nodes]
    return all(own is not None and (own.ndim == 0 or own.shape == value.shape) for own in values)


def _ordered(graph: fx.Graph, updates: Sequence[Update]) -> Iterator[Item]:
    """Yield everything that runs, updates as early as they may."""
    inside = {node: update for update in updates for node in update.nodes}
    waits = {id(update): _waits_for(update, inside) for update in updates}
    blocked: dict[fx.Node | int, list[Update]] = {}
    for update in updates:
        for other in waits[id(update)]:
            blocked.setdefault(other, []).append(update)

    def ready(done: fx.Node | int) -> Iterator[Item]:
        for update in blocked.pop(done, []):
            waits[id(update)].discard(done)
            if not waits[id(update)]:
                yield update
                yield from ready(id(update))

    nodes = [node for node in graph.nodes if node.op == "call_function" and node not in inside and not is_item(node)]
    early = dict.fromkeys(_from_inputs(nodes))
    for node in [*early, *(node for node in nodes if node not in early)]:
        yield node
        yield from ready(node)
    if blocked:
        raise StepError(f"updates that read each other's old values cannot run in place: {EAGERLY}")


def _from_inputs(nodes: Sequence[fx.Node]) -> Iterator[fx.Node]:
    """Yield the scalars that depend on inputs alone, such as Adam's rates: no update has to wait for them."""
    ready: set[fx.Node] = set()
    for node in nodes:
        value = value_of(node)
        scalar = value is not None and value.ndim == 0
        if scalar and all(source.op == "placeholder" or source in ready for source in node.all_input_nodes):
            ready.add(node)
            yield node


def _waits_for(update: Update, inside: Mapping[fx.Node, Update]) -> set[fx.Node | int]:
    """Return what has to run before an update: what it reads, and every other reader of what it overwrites.

    An update is named by its identity.
    """
    feeding = [source for node in update.nodes for source in node.all_input_nodes if source not in inside]
    before = {whole for source in [*feeding, *update.values] if (whole := _producer(source)) is not None}
    before |= {reader for port in update.replaced for reader in readers(port)}
    return {
        id(inside[node]) if node in inside else node
        for node in before
        if node.op == "call_function" and inside.get(node) is not update
    }


def _producer(node: fx.Node) -> fx.Node | None:
    """Return the operator that runs to give a node, past items; None for inputs."""
    while is_item(node):
        parent = node.args[0]
        if not isinstance(parent, fx.Node):
            return None
        node = parent
    return node if node.op == "call_function" else None


def operands(item: Item) -> Iterable[fx.Node]:
    """Return the nodes that an item reads, each once."""
    if isinstance(item, fx.Node):
        return item.all_input_nodes
    own = set(item.nodes)
    read = [source for node in item.nodes for source in node.all_input_nodes if source not in own]
    return dict.fromkeys([*read, *(value for value in item.values if value not in own), *item.replaced])
