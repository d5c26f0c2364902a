"""Layers joined to a network: every output has one reader, every layer comes after what it reads.

What NNTrainer calls realising (arXiv 2206.04688, section 4.2): several readers of one output become a `MultiOut`, and a
cross-entropy takes the last activation in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tuner.errors import ModelError, nearest
from tuner.planner.layers import Activation, Input, MultiOut, Operation, Shape, Traits, traits

Loss = Literal["mse", "cross"]
Optimiser = Literal["sgd", "adam"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
OPTIMISERS: tuple[Optimiser, ...] = get_args(Optimiser)


@dataclass(frozen=True, slots=True)
class Source:
    """An output that a layer reads: of which layer, and which one where a `MultiOut` has several."""

    layer: str
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as described.

    Attributes:
        name: Unlike any other.
        operation: What it computes; a `MultiOut`'s number of outputs is counted, not read.
        inputs: What it reads, in order.
        trainable: Whether its weights train.
    """

    name: str
    operation: Operation
    inputs: tuple[Source, ...] = ()
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """One layer in its place.

    Attributes:
        name: Of the layer.
        operation: What it computes.
        inputs: Index of the node and of its output, for every tensor it reads.
        trainable: Whether its weights train.
        traits: Its shapes and sizes.
    """

    name: str
    operation: Operation
    inputs: tuple[tuple[int, int], ...]
    trainable: bool
    traits: Traits

    @property
    def outputs(self) -> int:
        """How many outputs it has."""
        return self.operation.outputs if isinstance(self.operation, MultiOut) else 1

    @property
    def parameters(self) -> int:
        """How many learnable values it has."""
        return sum(self.traits.weights.values())


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in an order in which they can run, with the loss and the optimiser.

    Attributes:
        nodes: Each after what it reads; the last one's output goes to the loss. An activation that the cross-entropy
            takes in is not among them.
        loss: Mean squared error, or cross-entropy of a softmax or sigmoid.
        optimiser: Plain SGD keeps nothing, Adam two values a weight.
        batch_size: Samples a step.
    """

    nodes: tuple[Node, ...]
    loss: Loss
    optimiser: Optimiser
    batch_size: int


def network(layers: Sequence[Layer], *, loss: Loss, optimiser: Optimiser, batch_size: int) -> Network:
    """Join layers.

    Raises:
        ModelError: They do not fit together; the line names the layer.
    """
    if not layers:
        raise ModelError("the model has no layer: add a section such as [input] with its type")
    _check_sources(layers)
    whole = _in_order(_split_outputs(layers))
    end = _end(whole)
    if loss == "cross":
        if not isinstance(end.operation, Activation) or end.operation.function not in {"softmax", "sigmoid"}:
            raise ModelError(
                f"loss = cross wants softmax or sigmoid as the last activation, but the model ends with {end.name!r}"
            )
        whole = [layer for layer in whole if layer is not end]
        end = next(layer for layer in whole if layer.name == end.inputs[0].layer)
    ordered = [*(layer for layer in whole if layer is not end), end]
    if isinstance(end.operation, Input):
        raise ModelError("the model has only an input: add a layer that computes")
    return Network(tuple(_nodes(ordered)), loss, optimiser, batch_size)


def _check_sources(layers: Sequence[Layer]) -> None:
    known: dict[str, Layer] = {}
    for layer in layers:
        if layer.name in known:
            raise ModelError(f"two layers are called {layer.name!r}: rename one")
        known[layer.name] = layer
    for layer in layers:
        for source in layer.inputs:
            if source.layer not in known:
                raise ModelError(
                    f"layer {layer.name!r} reads {source.layer!r}, which is no layer{nearest(source.layer, known)}"
                )
            if source.output and not isinstance(known[source.layer].operation, MultiOut):
                raise ModelError(
                    f"layer {layer.name!r} reads output {source.output} of {source.layer!r}, which has one output: "
                    "only a multiout has several"
                )
        if not layer.inputs and not isinstance(layer.operation, Input):
            raise ModelError(f"layer {layer.name!r} reads nothing: name its input_layers, or put an input before it")


def _split_outputs(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers with a `MultiOut` after each output that has several readers, and every output read once."""
    readers: dict[str, int] = {}
    for source in (source for layer in layers for source in layer.inputs):
        readers[source.layer] = readers.get(source.layer, 0) + 1
    explicit = {layer.name for layer in layers if isinstance(layer.operation, MultiOut)}
    through = {name: name for name in explicit} | {
        name: f"{name}/multiout" for name, count in readers.items() if count > 1 and name not in explicit
    }
    free = {name: _free_outputs(name, layers) for name in through}
    found: list[Layer] = []
    for layer in layers:
        inputs = tuple(
            Source(through[one.layer], next(free[one.layer]) if one.output is None else one.output)
            if one.layer in through
            else one
            for one in layer.inputs
        )
        operation = MultiOut(readers.get(layer.name, 1)) if layer.name in explicit else layer.operation
        found.append(replace(layer, operation=operation, inputs=inputs))
        if layer.name in through and layer.name not in explicit:
            found.append(Layer(through[layer.name], MultiOut(readers[layer.name]), (Source(layer.name),)))
    return found


def _free_outputs(name: str, layers: Sequence[Layer]) -> Iterator[int]:
    """Return the outputs of a layer that no reader asks for by number."""
    sources = [source for layer in layers for source in layer.inputs if source.layer == name]
    asked = [source.output for source in sources if source.output is not None]
    if sorted(set(asked)) != sorted(asked) or any(output >= len(sources) for output in asked):
        raise ModelError(
            f"every output of {name!r} has one reader, numbered from 0 to {len(sources) - 1}, "
            f"but {', '.join(map(str, sorted(asked)))} are asked for"
        )
    return iter([output for output in range(len(sources)) if output not in asked])


def _in_order(layers: Sequence[Layer]) -> list[Layer]:
    waiting = list(layers)
    done: set[str] = set()
    found: list[Layer] = []
    while waiting:
        ready = next((layer for layer in waiting if all(one.layer in done for one in layer.inputs)), None)
        if ready is None:
            names = ", ".join(repr(layer.name) for layer in waiting[:3])
            raise ModelError(f"layers read each other in a circle, among them {names}")
        waiting.remove(ready)
        found.append(ready)
        done.add(ready.name)
    return found


def _end(layers: Sequence[Layer]) -> Layer:
    read = {source.layer for layer in layers for source in layer.inputs}
    ends = [layer for layer in layers if layer.name not in read]
    if len(ends) != 1:
        names = " and ".join(repr(layer.name) for layer in ends)
        raise ModelError(f"the loss reads one output, but nothing reads those of {names}: join them or remove one")
    return ends[0]


def _nodes(layers: Sequence[Layer]) -> Iterator[Node]:
    index: Mapping[str, int] = {layer.name: at for at, layer in enumerate(layers)}
    shapes: list[Shape] = []
    for layer in layers:
        try:
            found = traits(
                layer.operation, [shapes[index[one.layer]] for one in layer.inputs], trainable=layer.trainable
            )
        except ModelError as error:
            raise ModelError(f"layer {layer.name!r}: {error}") from None
        shapes.append(found.shape)
        inputs = tuple((index[one.layer], one.output or 0) for one in layer.inputs)
        yield Node(layer.name, layer.operation, inputs, layer.trainable, found)
