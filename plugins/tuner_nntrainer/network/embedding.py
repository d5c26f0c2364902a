"""What an embedding reads: values of a sample that are row numbers of its table."""

from collections.abc import Iterator

import numpy as np

from tuner.arrays import Array, RowNumbers
from tuner.errors import ModelError
from tuner_nntrainer.network.layers import Embedding, Flatten, Input, MultiOut, Split
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
