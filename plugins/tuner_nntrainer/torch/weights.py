"""NNTrainer's file of weights: 32-bit floats, layer after layer, in the order in which the layers run.

Source: NeuralNetwork::save and the layers' requestWeight calls. A fully connected layer has [inputs, outputs], a
convolution [filters, channels, height, width], an embedding [rows, width]; an LSTM (gates i, f, g, o, as PyTorch) and a
GRU (gates z, r, g, where PyTorch has r, z, n) have [features, gates], [units, gates] and one bias after the other; a
batch normalisation has mean, variance, gamma, beta. After the weights there is nothing, the counters of epoch and step,
or "adam" and the optimiser's state.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats
from tuner.errors import ModelError
from tuner.reading import read_bytes
from tuner_nntrainer.network.network import Network
from tuner_nntrainer.torch.layers import Recurrent

MOST_BYTES = 1 << 32
#: Bytes after the weights: the numbers of the epoch and of the step.
COUNTERS = 8
ADAM = b"adam"
#: A tensor that a file holds, transposed or not, and the size of a gate where gates are in another order.
Slot = tuple[torch.Tensor, bool, int]


def load_weights(network: Network, modules: Mapping[int, nn.Module], file: Path | None) -> None:
    """Load the weights of a network, or those of its backbones that have a file.

    Args:
        network: The network.
        modules: Modules of its nodes, by the node's number.
        file: File of all its weights; None for those of backbones alone.

    Raises:
        ModelError: A file cannot be read, or has another number of weights.
    """

    def source(pair: tuple[int, nn.Module]) -> tuple[Path | None, str]:
        node = network.nodes[pair[0]]
        return (node.start.file, node.name.partition("/")[0]) if file is None else (file, "")

    for (path, _), members in groupby(sorted(modules.items()), key=source):
        if path is not None:
            _load(path, [slot for _, module in members for slot in _slots(module)])


def weights_of(modules: Mapping[int, nn.Module]) -> bytes:
    """Return weights as a file has them, which `load_weights` reads.

    Args:
        modules: Modules of a network's nodes, by the node's number.
    """
    slots = (slot for _, module in sorted(modules.items()) for slot in _slots(module))
    return b"".join(
        _reordered((value.detach().T if transposed else value.detach()).numpy(), gate).tobytes()
        for value, transposed, gate in slots
    )


def _load(path: Path, slots: Sequence[Slot]) -> None:
    try:
        content = read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise ModelError(f"{path}: the weights cannot be read ({error.strerror or error}): check the path") from None
    count = sum(value.numel() for value, _, _ in slots)
    rest = content[4 * count :]
    if len(content) < 4 * count or (len(rest) not in {0, COUNTERS} and not rest.startswith(ADAM)):
        raise ModelError(
            f"{path}: the weights must be {count:,} 32-bit floats, as many as the layers have, got {len(content):,} "
            "bytes: give the weights of this model file"
        )
    values = np.frombuffer(content, "<f4", count)
    if not np.isfinite(values).all():
        raise ModelError(f"{path}: the weights must be finite numbers, but some are not: train the model again")
    begin = 0
    with torch.no_grad():
        for value, transposed, gate in slots:
            own = values[begin : begin + value.numel()]
            begin += value.numel()
            shape = tuple(value.shape[::-1] if transposed else value.shape)
            array = _reordered(own.reshape(shape), gate)
            value.copy_(torch.from_numpy(np.array(array.T if transposed else array)))


def _slots(module: nn.Module) -> Iterator[Slot]:
    """Yield the tensors of a layer in the order of a file."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - no public base
            for name in ("running_mean", "running_var", "weight", "bias"):
                yield getattr(layer, name), False, 0
        elif isinstance(layer, nn.LSTM | nn.GRU):
            gate = layer.hidden_size if isinstance(layer, nn.GRU) else 0
            for name, value in layer.named_parameters():
                yield value, name.startswith("weight"), gate
        elif not isinstance(layer, Recurrent):
            for _, value in layer.named_parameters(recurse=False):
                yield value, isinstance(layer, nn.Linear) and value.ndim > 1, 0


def _reordered(array: Floats, gate: int) -> Floats:
    """Return an array with the first two gates on its last axis, of some size, exchanged; as it is for a size of 0."""
    if not gate:
        return array
    return np.concatenate([array[..., gate : 2 * gate], array[..., :gate], array[..., 2 * gate :]], axis=-1)
