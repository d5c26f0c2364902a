"""Layers joined to a network: every output has one reader, every layer comes after what it reads.

NNTrainer calls this realising (arXiv 2206.04688, section 4.2): several readers of one output become a `MultiOut`, and
a cross-entropy absorbs the last activation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from tuner.errors import ModelError, nearest
from tuner_nntrainer.network.layers import Activation, Function, Input, MultiOut, Operation, Shape, Split
from tuner_nntrainer.network.rules import Traits, traits

LossName = Literal["mse", "cross"]
OptimiserName = Literal["sgd", "adam"]
Initialiser = Literal[
    "zeros", "ones", "lecun_normal", "lecun_uniform", "xavier_normal", "xavier_uniform", "he_normal", "he_uniform"
]
LOSSES: tuple[LossName, ...] = get_args(LossName)
OPTIMISERS: tuple[OptimiserName, ...] = get_args(OptimiserName)
INITIALISERS: tuple[Initialiser, ...] = get_args(Initialiser)
#: Layers with several outputs.
SEVERAL = (MultiOut, Split)


@dataclass(frozen=True, slots=True)
class LayerInput:
    """An output that a layer reads.

    Attributes:
        layer: Name of the layer whose output it is.
        output: Number of the output of a `MultiOut` or a `Split`; None for the next free one.
    """

    layer: str
    output: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """What a layer is before it trains, which its plan does not depend on.

    Attributes:
        weight: Initialiser of its weights.
        bias: Initialiser of its biases.
        file: File of weights that it starts from instead; see `tuner_nntrainer.torch.weights`.
        refusal: Why it can be planned and not be trained; empty where it can.
    """

    weight: Initialiser = "xavier_uniform"
    bias: Initialiser = "zeros"
    file: Path | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as described.

    Attributes:
        name: Unique name.
        operation: Operation; the number of outputs of a `MultiOut` or a `Split` is counted, not read.
        inputs: Outputs that it reads, in order.
        trainable: Whether its weights train.
        start: What it is before it trains.
    """

    name: str
    operation: Operation
    inputs: tuple[LayerInput, ...] = ()
    trainable: bool = True
    start: Start = Start()


@dataclass(frozen=True, slots=True)
class Node:
    """One layer in its place in the network.

    Attributes:
        name: Name of the layer.
        operation: Operation.
        inputs: Index of the node and of its output, for every tensor it reads.
        trainable: Whether its weights train.
        traits: Shapes and sizes.
        start: What it is before it trains.
    """

    name: str
    operation: Operation
    inputs: tuple[tuple[int, int], ...]
    trainable: bool
    traits: Traits
    start: Start = Start()

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.operation.outputs if isinstance(self.operation, SEVERAL) else 1

    @property
    def parameters(self) -> int:
        """Number of learnable values."""
        return sum(self.traits.weights.values())


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in an order in which they can run, with the loss and the optimiser.

    Attributes:
        nodes: Nodes, each after the nodes it reads; the last one's output goes to the loss. An activation that the
            cross-entropy absorbs is not among them.
        loss: Mean squared error, or cross-entropy of a softmax or sigmoid.
        optimiser: Plain SGD without state, or Adam with two values per weight.
        batch_size: Samples per step.
        absorbed: The activation that the cross-entropy absorbs; None for another loss.
    """

    nodes: tuple[Node, ...]
    loss: LossName
    optimiser: OptimiserName
    batch_size: int
    absorbed: Function | None = None


def network(layers: Sequence[Layer], *, loss: LossName, optimiser: OptimiserName, batch_size: int) -> Network:
    """Join layers.

    Args:
        layers: Layers in any order.
        loss: Loss of the last layer's output.
        optimiser: Optimiser of the weights.
        batch_size: Samples per step.

    Raises:
        ModelError: The layers do not fit together; the message names the layer.
    """
    if not layers:
        raise ModelError("the model has no layer: add a section such as [input] with its type")
    _check_sources(layers)
    ordered = _in_order(_with_multiouts(layers))
    end = _end(ordered)
    absorbed: Function | None = None
    if loss == "cross":
        if not isinstance(end.operation, Activation) or end.operation.function not in {"softmax", "sigmoid"}:
            raise ModelError(
                f"loss = cross requires softmax or sigmoid as the last activation, but the model ends with {end.name!r}"
            )
        absorbed = end.operation.function
        ordered = [layer for layer in ordered if layer is not end]
        end = next(layer for layer in ordered if layer.name == end.inputs[0].layer)
    if isinstance(end.operation, Input):
        raise ModelError("the model has only an input: add a layer that computes")
    before = [layer for layer in ordered if layer is not end]
    return Network(tuple(_nodes([*before, end])), loss, optimiser, batch_size, absorbed)


def _check_sources(layers: Sequence[Layer]) -> None:
    by_name: dict[str, Layer] = {}
    for layer in layers:
        if layer.name in by_name:
            raise ModelError(f"two layers are called {layer.name!r}: rename one")
        by_name[layer.name] = layer
    for layer in layers:
        for source in layer.inputs:
            if source.layer not in by_name:
                raise ModelError(
                    f"layer {layer.name!r} reads {source.layer!r}, which is no layer{nearest(source.layer, by_name)}"
                )
            if source.output and not isinstance(by_name[source.layer].operation, SEVERAL):
                raise ModelError(
                    f"layer {layer.name!r} reads output {source.output} of {source.layer!r}, which has one output: "
                    "only a multiout or a split has several"
                )
        if not layer.inputs and not isinstance(layer.operation, Input):
            raise ModelError(f"layer {layer.name!r} reads nothing: name its input_layers, or put an input before it")


def _with_multiouts(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers with a `MultiOut` after each output that has several readers, and every output read once."""
    readers: dict[str, int] = {}
    for source in (source for layer in layers for source in layer.inputs):
        readers[source.layer] = readers.get(source.layer, 0) + 1
    explicit = {layer.name for layer in layers if isinstance(layer.operation, SEVERAL)}
    through = {name: name for name in explicit} | {
        name: f"{name}/multiout" for name, count in readers.items() if count > 1 and name not in explicit
    }
    free = {name: _free_outputs(name, layers) for name in through}

    def redirected(source: LayerInput) -> LayerInput:
        if source.layer not in through:
            return source
        output = next(free[source.layer]) if source.output is None else source.output
        return LayerInput(through[source.layer], output)

    result: list[Layer] = []
    for layer in layers:
        inputs = tuple(redirected(source) for source in layer.inputs)
        operation = layer.operation
        if isinstance(operation, SEVERAL):
            operation = replace(operation, outputs=readers.get(layer.name, 1))
        result.append(replace(layer, operation=operation, inputs=inputs))
        if layer.name in through and layer.name not in explicit:
            result.append(Layer(through[layer.name], MultiOut(readers[layer.name]), (LayerInput(layer.name),)))
    return result


def _free_outputs(name: str, layers: Sequence[Layer]) -> Iterator[int]:
    """Return the outputs of a layer that no reader asks for by number."""
    sources = [source for layer in layers for source in layer.inputs if source.layer == name]
    asked = [source.output for source in sources if source.output is not None]
    if sorted(set(asked)) != sorted(asked) or any(output >= len(sources) for output in asked):
        raise ModelError(
            f"each output of {name!r}, 0 to {len(sources) - 1}, must be read once, but these are read: "
            f"{', '.join(map(str, sorted(asked)))}"
        )
    return iter([output for output in range(len(sources)) if output not in asked])


def _in_order(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers, each after the layers it reads, and else in the order given."""
    waiting = list(layers)
    done: set[str] = set()
    ordered: list[Layer] = []
    while waiting:
        ready = next((layer for layer in waiting if all(source.layer in done for source in layer.inputs)), None)
        if ready is None:
            names = ", ".join(repr(layer.name) for layer in waiting[:3])
            raise ModelError(f"layers read each other in a circle, among them {names}: correct their input_layers")
        waiting.remove(ready)
        ordered.append(ready)
        done.add(ready.name)
    return ordered


def _end(layers: Sequence[Layer]) -> Layer:
    """Return the only layer that no other reads."""
    read = {source.layer for layer in layers for source in layer.inputs}
    ends = [layer for layer in layers if layer.name not in read]
    if len(ends) != 1:
        names = " and ".join(repr(layer.name) for layer in ends)
        raise ModelError(f"the loss reads one output, but no layer reads those of {names}: join them or remove one")
    return ends[0]


def _nodes(layers: Sequence[Layer]) -> Iterator[Node]:
    index: Mapping[str, int] = {layer.name: at for at, layer in enumerate(layers)}
    shapes: list[Shape] = []
    for layer in layers:
        in_shapes = [shapes[index[source.layer]] for source in layer.inputs]
        try:
            layer_traits = traits(layer.operation, in_shapes, trainable=layer.trainable)
        except ModelError as error:
            raise ModelError(f"layer {layer.name!r}: {error}") from None
        shapes.append(layer_traits.shape)
        inputs = tuple((index[source.layer], source.output or 0) for source in layer.inputs)
        yield Node(layer.name, layer.operation, inputs, layer.trainable, layer_traits, layer.start)
