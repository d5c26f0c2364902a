"""The PyTorch module of one layer, initialised as its section says.

Sources: NNTrainer's layers (nntrainer/layers/*.cpp) for what each computes, its tensor/initializer for the bounds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import nn

from tuner_nntrainer.network import layers
from tuner_nntrainer.network.layers import Shape
from tuner_nntrainer.network.network import Initialiser, Node, Start

#: What each initialiser does to a weight [outputs, inputs, ...].
_INITIALISE: Mapping[Initialiser, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": nn.init.zeros_,
    "ones": nn.init.ones_,
    "lecun_normal": partial(nn.init.kaiming_normal_, nonlinearity="linear"),
    "lecun_uniform": partial(nn.init.kaiming_uniform_, nonlinearity="linear"),
    "xavier_normal": nn.init.xavier_normal_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "he_normal": partial(nn.init.kaiming_normal_, nonlinearity="relu"),
    "he_uniform": partial(nn.init.kaiming_uniform_, nonlinearity="relu"),
}


class Recurrent(nn.Module):
    """An LSTM or a GRU over the rows of a map [n, 1, time, features], or over one row [n, features]."""

    def __init__(self, layer: nn.LSTM | nn.GRU, shape: Shape, *, sequences: bool) -> None:
        super().__init__()
        self.layer, self._steps, self._sequences = layer, shape[1], sequences

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state [n, units], or those of all steps [n, 1, time, units]."""
        rows = value.squeeze(1) if self._steps > 1 else value.unsqueeze(1)
        hidden: torch.Tensor = self.layer(rows)[0]
        if self._sequences and self._steps > 1:
            return hidden.unsqueeze(1)
        return hidden[:, self._steps - 1]


class Rows(nn.Module):
    """A table's rows for whole numbers that come as floats: [n, numbers] to [n, 1, numbers, width], or [n, width]."""

    def __init__(self, size: int, width: int, *, single: bool) -> None:
        super().__init__()
        self.table, self._single = nn.Embedding(size, width), single

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Look the numbers up."""
        rows: torch.Tensor = self.table(value.long())
        return rows.squeeze(1) if self._single else rows.unsqueeze(1)


class WidthNorm(nn.BatchNorm1d):
    """Batch normalisation of every value along the width of [n, 1, height, width]."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Normalise."""
        return super().forward(value.flatten(0, 2)).reshape_as(value)


def module_of(node: Node, shapes: Sequence[Shape]) -> nn.Module | None:
    """Return a layer's module, initialised; None where it needs none.

    Args:
        node: The layer.
        shapes: Shapes of what it reads.
    """
    make = _MAKERS.get(type(node.operation))
    if make is None:
        return None
    module = make(node.operation, shapes[0])
    _initialise(module, node.start)
    return module


def _pooling(layer: layers.Pooling2d, _shape: Shape) -> nn.Module:
    match layer.pooling:
        case "global_max":
            return nn.AdaptiveMaxPool2d(1)
        case "global_average":
            return nn.AdaptiveAvgPool2d(1)
        case "max":
            return nn.MaxPool2d(layer.size, layer.stride)
    return nn.AvgPool2d(layer.size, layer.stride)


def _activation(layer: layers.Activation, _shape: Shape) -> nn.Module:
    return {"relu": nn.ReLU(), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(), "softmax": nn.Softmax(-1)}[layer.function]


def _recurrent(layer: layers.Lstm, shape: Shape) -> nn.Module:
    kind = nn.GRU if isinstance(layer, layers.Gru) else nn.LSTM
    inner = kind(shape[2], layer.unit, bias=layer.bias, batch_first=True)
    return Recurrent(inner, shape, sequences=layer.sequences)


def _convolution(layer: layers.Conv2d, shape: Shape) -> nn.Module:
    top, bottom, left, right = _sides(layer, shape)
    even = (top, left) if (top, left) == (bottom, right) else (0, 0)
    convolution = nn.Conv2d(shape[0], layer.filters, layer.kernel, layer.stride, even, bias=layer.bias)
    if (top, left) == (bottom, right):
        return convolution
    return nn.Sequential(nn.ZeroPad2d((left, right, top, bottom)), convolution)


def _sides(layer: layers.Conv2d, shape: Shape) -> tuple[int, int, int, int]:
    """Return the padding at the top, bottom, left and right; of an odd "same" the larger half comes last."""
    if layer.padding == "valid":
        return 0, 0, 0, 0
    if layer.padding != "same":
        return layer.padding
    sides: list[int] = []
    for size, kernel, stride in zip(shape[1:], layer.kernel, layer.stride, strict=True):
        both = max(0, (-(-size // stride) - 1) * stride + kernel - size)
        sides += [both // 2, both - both // 2]
    return sides[0], sides[1], sides[2], sides[3]


def _norm(layer: layers.BatchNormalization, shape: Shape) -> nn.Module:
    kind = nn.BatchNorm2d if shape[0] > 1 else nn.BatchNorm1d if shape[1] == 1 else WidthNorm
    return kind(shape[0] if shape[0] > 1 else shape[2], eps=layer.epsilon, momentum=1 - layer.momentum)


def _initialise(module: nn.Module, start: Start) -> None:
    for layer in module.modules():
        for name, value in layer.named_parameters(recurse=False):
            if value.ndim == 1 and not isinstance(layer, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - no public base
                _INITIALISE[start.bias](value)
            elif isinstance(layer, nn.Embedding):  # NNTrainer's table has rows for inputs
                with torch.no_grad():
                    value.copy_(_INITIALISE[start.weight](value.T.contiguous()).T)
            elif value.ndim > 1 and name:
                _INITIALISE[start.weight](value)


#: Makes the module of a layer, given the shape of what it reads.
_MAKERS: Mapping[type[layers.Operation], Callable[..., nn.Module]] = {
    layers.FullyConnected: lambda layer, shape: nn.Linear(shape[2], layer.unit, layer.bias),
    layers.Conv1d: lambda layer, shape: _convolution(layer.flat, shape),
    layers.Conv2d: _convolution,
    layers.Pooling2d: _pooling,
    layers.BatchNormalization: _norm,
    layers.Activation: _activation,
    layers.Dropout: lambda layer, _: nn.Dropout(layer.rate),
    layers.Embedding: lambda layer, shape: Rows(layer.size, layer.width, single=shape[2] == 1),
    layers.Lstm: _recurrent,
    layers.Gru: _recurrent,
}
