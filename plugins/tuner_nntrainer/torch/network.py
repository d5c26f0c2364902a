"""A model file's network as one PyTorch module.

A sample is an array ``[channels, height, width]``. Between layers a value is a map ``[n, channels, height, width]``,
or a vector ``[n, width]`` where channels and height are 1.
"""

from functools import reduce
from operator import add
from pathlib import Path

import torch
from torch import nn

from tuner_nntrainer.file.ini import read_ini
from tuner_nntrainer.network import layers
from tuner_nntrainer.network.checks import check_trainable
from tuner_nntrainer.network.layers import Shape
from tuner_nntrainer.network.network import Network, Node
from tuner_nntrainer.torch.layers import module_of
from tuner_nntrainer.torch.weights import load_weights

#: Layers that read maps, whatever their height.
OF_MAPS = (layers.Conv2d, layers.Conv1d, layers.Pooling2d, layers.Concat, layers.Split)


def from_ini(file: str, weights: str = "") -> "FileNetwork":
    """Return the network of a model file; of a softmax or sigmoid that a cross-entropy absorbs, its logits.

    Args:
        file: Path of the file.
        weights: File of weights in NNTrainer's format that the network starts from; else it starts as its initialisers
            say, but for backbones with ``preload = true``.

    Raises:
        ModelError: The file cannot be read or trained, or weights do not fit.
    """
    network = read_ini(Path(file))
    check_trainable(network)
    model = FileNetwork(network)
    load_weights(network, model.by_node(), Path(weights) if weights else None)
    return model


class FileNetwork(nn.Module):
    """The network of a model file; takes [n, channels, height, width], returns [n, outputs].

    Attributes:
        layers: Modules of the layers that have one, by name.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._nodes = network.nodes
        self.layers = nn.ModuleDict()
        self._names: dict[int, str] = {}
        for at, node in enumerate(network.nodes):
            module = module_of(node, [network.nodes[source].traits.shape for source, _ in node.inputs])
            if module is not None:
                self._names[at] = self._free_name(node.name)
                self.layers[self._names[at]] = module

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Run the layers in their order."""
        values: list[list[torch.Tensor]] = []
        for at, node in enumerate(self._nodes):
            read = [values[source][output] for source, output in node.inputs] or [value]
            if isinstance(node.operation, OF_MAPS) and not _is_along_vectors(node):
                shapes = [self._nodes[source].traits.shape for source, _ in node.inputs]
                read = [_as_map(one, shape) for one, shape in zip(read, shapes, strict=True)]
            module = self.layers[self._names[at]] if at in self._names else None
            values.append(_outputs(node, read, module))
        last = values[-1][0]
        return last if _is_vector(self._nodes[-1].traits.shape) else last.flatten(1)

    def by_node(self) -> dict[int, nn.Module]:
        """Return the modules by the number of their node."""
        return {at: self.layers[name] for at, name in self._names.items()}

    def _free_name(self, name: str) -> str:
        """Return a module's name for a layer's: no dots, none that is taken."""
        name = "".join(letter if letter.isalnum() else "_" for letter in name)
        while name in self.layers or hasattr(self.layers, name):
            name += "_"
        return name


def _outputs(node: Node, read: list[torch.Tensor], module: nn.Module | None) -> list[torch.Tensor]:
    """Return a layer's outputs."""
    operation, shape = node.operation, node.traits.shape
    if module is not None:
        value = module(read[0])
        return [_formed(value, shape) if isinstance(operation, OF_MAPS) else value]
    if isinstance(operation, layers.Addition):
        return [reduce(add, read)]
    if isinstance(operation, layers.MultiOut):
        return read * operation.outputs
    if isinstance(operation, layers.Concat | layers.Split):
        along = _is_along_vectors(node)
        axis = 1 if along else operation.axis
        size = shape[operation.axis - 1]
        joined = isinstance(operation, layers.Concat)
        parts = (
            [torch.cat(read, axis)] if joined else [read[0].narrow(axis, at * size, size) for at in range(node.outputs)]
        )
        return parts if along else [_formed(part, shape) for part in parts]
    if isinstance(operation, layers.Input | layers.Flatten):
        return [_formed(read[0], shape)]
    raise TypeError(f"no module for {operation}")


def _is_along_vectors(node: Node) -> bool:
    """Return whether a layer joins or divides vectors along their width, which need not become maps for that."""
    operation, shape = node.operation, node.traits.shape
    return isinstance(operation, layers.Concat | layers.Split) and operation.axis == 3 and _is_vector(shape)  # noqa: PLR2004 - width


def _formed(value: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Return a value as a vector where its shape is one, else as it is."""
    return value.flatten(1) if _is_vector(shape) else value


def _as_map(value: torch.Tensor, shape: Shape) -> torch.Tensor:
    return value.reshape(-1, *shape) if _is_vector(shape) else value


def _is_vector(shape: Shape) -> bool:
    return shape[:2] == (1, 1)
