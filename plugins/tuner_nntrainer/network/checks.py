"""Networks that can be planned, and those that can be trained too: every refusal in one line."""

from collections.abc import Iterator

import numpy as np

from tuner.arrays import Array, RowNumbers
from tuner.errors import ModelError
from tuner_nntrainer.network.layers import Embedding, Flatten, Gru, Input, Lstm, MultiOut, Pooling2d, Split
from tuner_nntrainer.network.network import Network, Node


def check_embeddings(network: Network) -> None:
    """Require that every embedding reads the input, whole or in parts.

    Raises:
        ModelError: One reads values that a layer computes.
    """
    for _ in row_numbers(network):
        pass


def row_numbers(network: Network) -> Iterator[tuple[Node, RowNumbers]]:
    """Yield each embedding, and which values of a flattened sample it reads, int64.

    Raises:
        ModelError: One reads values that a layer computes.
    """
    for node in network.nodes:
        if isinstance(node.operation, Embedding):
            places = _places(network, *node.inputs[0])
            if places is None:
                raise ModelError(
                    f"layer {node.name!r}: an embedding must read the input, or a part of it that split gives, as its "
                    "values are row numbers: move it to the front"
                )
            yield node, places.reshape(-1)


def _places(network: Network, at: int, output: int) -> Array | None:
    """Return the places in a flattened sample of a node's output; None where the node computes."""
    node = network.nodes[at]
    if isinstance(node.operation, Input):
        return np.arange(np.prod(node.operation.shape)).reshape(node.operation.shape)
    if not isinstance(node.operation, Split | MultiOut | Flatten):
        return None
    before = _places(network, *node.inputs[0])
    if before is None or isinstance(node.operation, MultiOut):
        return before
    if isinstance(node.operation, Split):
        return np.array_split(before, node.operation.outputs, axis=node.operation.axis - 1)[output]
    return before.reshape(1, 1, -1)


def check_trainable(network: Network) -> None:
    """Require that PyTorch computes what the network's layers compute, and that a cut divides what trains.

    Raises:
        ModelError: A layer cannot be trained, or frozen layers stand behind one that trains.
    """
    for refusal in _refusals(network):
        raise ModelError(refusal)


def frozen_parameters(network: Network) -> int:
    """Return the number of learnable values that do not train: those of the first layers."""
    return sum(node.parameters for node in network.nodes if not node.trainable)


def _refusals(network: Network) -> Iterator[str]:
    inputs = sum(isinstance(node.operation, Input) for node in network.nodes)
    if inputs > 1:
        yield f"the model has {inputs} inputs, but a sample is one array: give one input, and divide it by split"
    trains = ""
    for node in network.nodes:
        if node.start.refusal:
            yield node.start.refusal
        if reason := _unlike_torch(node):
            yield f"layer {node.name!r}: {reason}"
        if node.parameters and node.trainable:
            trains = trains or node.name
        elif node.parameters and trains:
            yield (
                f"layer {node.name!r} has trainable = false behind {trains!r}, which trains: only the first layers can "
                "be frozen in training"
            )
    if not trains:
        yield "no layer trains: every layer with weights has trainable = false"


def _unlike_torch(node: Node) -> str:
    """Return why PyTorch has no such layer; empty where it has."""
    operation = node.operation
    if isinstance(operation, Lstm) and operation.bias and operation.one_bias:
        return "integrate_bias = true is planned only, as PyTorch's layer has two biases: remove it to train"
    if isinstance(operation, Gru) and not operation.reset_after:
        return "reset_after = false is planned only, as PyTorch's GRU resets after: remove it to train"
    if isinstance(operation, Pooling2d) and operation.padding not in {"valid", (0, 0, 0, 0)}:
        return "pooling with padding is planned only: give padding = valid to train"
    return ""
