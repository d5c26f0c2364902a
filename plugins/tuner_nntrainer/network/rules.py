"""The traits of each kind of layer, without a tensor: shapes, bytes and multiply-accumulates. Values are 32-bit floats.

NNTrainer (arXiv 2206.04688), section 4.1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner.errors import ModelError
from tuner_nntrainer.network import layers
from tuner_nntrainer.network.layers import Padding, Pair, Shape, format_shape
from tuner_nntrainer.network.lifetimes import Lifespan

#: Whether a layer's output may share its input's memory: no; overwriting it; reading it.
Sharing = Literal["none", "in-place", "view"]

VALUE_BYTES = 4
INDEX_BYTES = 4
NEVER = Lifespan(0)


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """A tensor inside a layer, in addition to inputs, outputs and weights.

    Attributes:
        name: Name within the layer.
        sample_bytes: Size for each sample of the batch.
        fixed_bytes: Size that does not depend on the batch.
        lifespan: Orders of the layer that need it, if the layer's weights train.
        kind: Purpose, as in `tuner.planner.memory.placement.Tensor`.
    """

    name: str
    sample_bytes: int
    fixed_bytes: int
    lifespan: Lifespan
    kind: Literal["saved", "scratch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Sizes of a layer, and its needs in a training step.

    Attributes:
        shape: Shape of each output, per sample.
        weights: Number of values of each learnable tensor, by name.
        state: Number of values of each tensor that is always kept but not learned, by name.
        macs: Multiply-accumulates of the forward pass, per sample; the gradient of the weights costs as many again,
            and so does the derivative of the input.
        reads_input: Orders after the forward pass that read the input again.
        reads_output: Orders after the forward pass that read the output again.
        sharing: Whether the output may share the input's memory, and the input's derivative the output's derivative's.
        inner: Tensors kept from the forward pass for the backward pass, and tensors needed while computing.
    """

    shape: Shape
    weights: Mapping[str, int] = field(default_factory=dict)
    state: Mapping[str, int] = field(default_factory=dict)
    macs: int = 0
    reads_input: Lifespan = NEVER
    reads_output: Lifespan = NEVER
    sharing: Sharing = "none"
    inner: tuple[LayerTensor, ...] = ()


def values(shape: Sequence[int]) -> int:
    """Return the number of values of a shape."""
    return math.prod(shape)


def traits(layer: layers.Operation, shapes: Sequence[Shape], *, trainable: bool = True) -> Traits:
    """Return the traits of a layer.

    Args:
        layer: layers.Operation of the layer.
        shapes: Shapes of its inputs, per sample; none for an `Input`.
        trainable: Whether its weights train; a batch norm that does not uses its running statistics.

    Raises:
        ModelError: The layer cannot take inputs of these shapes.
    """
    many = isinstance(layer, layers.Addition | layers.Concat)
    if not many and len(shapes) != (0 if isinstance(layer, layers.Input) else 1):
        raise ModelError(f"a layer of this type reads one tensor, but {len(shapes)} are given to it")
    return _RULES[type(layer)](layer, shapes, trainable)


def _input(layer: layers.Input, _shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=layer.shape)


def _fully_connected(layer: layers.FullyConnected, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    *rows, width = shapes[0]
    weights = {"weight": width * layer.unit, **({"bias": layer.unit} if layer.bias else {})}
    macs = values(rows) * width * layer.unit
    return Traits(shape=(rows[0], rows[1], layer.unit), weights=weights, macs=macs, reads_input=Lifespan.GRADIENT)


def _conv2d(layer: layers.Conv2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    height, width = _windows(shapes[0], layer.kernel, layer.stride, layer.padding)
    window = channels * values(layer.kernel)
    weights = {"weight": layer.filters * window, **({"bias": layer.filters} if layer.bias else {})}
    shape = (layer.filters, height, width)
    return Traits(shape=shape, weights=weights, macs=values(shape) * window, reads_input=Lifespan.GRADIENT)


def _conv1d(layer: layers.Conv1d, shapes: Sequence[Shape], trainable: bool) -> Traits:
    if shapes[0][1] != 1:
        raise ModelError(f"conv1d: the input must be channels:1:width, got {format_shape(shapes[0])}")
    return _conv2d(layer.flat, shapes, trainable)


def _pooling2d(layer: layers.Pooling2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    whole = layer.pooling.startswith("global")
    height, width = (1, 1) if whole else _windows(shapes[0], layer.size, layer.stride, layer.padding)
    shape = (channels, height, width)
    if not layer.pooling.endswith("max"):
        return Traits(shape=shape)
    index = LayerTensor("index", values(shape) * INDEX_BYTES, 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return Traits(shape=shape, inner=(index,))


def _batch_normalization(_layer: layers.BatchNormalization, shapes: Sequence[Shape], trainable: bool) -> Traits:
    channels, _, width = shapes[0]
    features = channels if channels > 1 else width
    inner = (
        LayerTensor("normalised", values(shapes[0]) * VALUE_BYTES, 0, Lifespan.ITERATION, "saved"),
        LayerTensor("statistics", 0, 2 * features * VALUE_BYTES, Lifespan.ITERATION, "saved"),
    )
    return Traits(
        shape=shapes[0],
        weights={"gamma": features, "beta": features},
        state={"mean": features, "variance": features},
        sharing="in-place",
        inner=inner if trainable else (),
    )


def _activation(layer: layers.Activation, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if not layer.mask or layer.function != "relu":
        return Traits(shape=shapes[0], reads_output=Lifespan.DERIVATIVE, sharing="in-place")
    mask = LayerTensor("mask", math.ceil(values(shapes[0]) / 8), 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return Traits(shape=shapes[0], sharing="in-place", inner=(mask,))


def _flatten(_layer: layers.Flatten, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=(1, 1, values(shapes[0])), sharing="view")


def _addition(_layer: layers.Addition, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if len(set(shapes)) != 1:
        raise ModelError(f"addition: inputs must have one shape, got {_listed(shapes)}")
    return Traits(shape=shapes[0])


def _concat(layer: layers.Concat, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    at = layer.axis - 1
    if len({shape[:at] + shape[at + 1 :] for shape in shapes}) != 1:
        raise ModelError(f"concat along axis {layer.axis}: inputs must differ in that axis only, got {_listed(shapes)}")
    joined = list(shapes[0])
    joined[at] = sum(shape[at] for shape in shapes)
    return Traits(shape=(joined[0], joined[1], joined[2]))


def _multi_out(_layer: layers.MultiOut, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=shapes[0], sharing="view")


def _split(layer: layers.Split, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    at = layer.axis - 1
    size = shapes[0][at]
    number = layer.number or size
    if size % number or number != layer.outputs:
        raise ModelError(
            f"split along axis {layer.axis} of {format_shape(shapes[0])}: split_number must divide {size}, and each "
            f"part must be read once, got {number} parts of which {layer.outputs} are read"
        )
    part = [*shapes[0][:at], size // number, *shapes[0][at + 1 :]]
    return Traits(shape=(part[0], part[1], part[2]))


def _dropout(_layer: layers.Dropout, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    kept = Lifespan.FORWARD | Lifespan.DERIVATIVE
    return Traits(shape=shapes[0], inner=(LayerTensor("mask", values(shapes[0]) * VALUE_BYTES, 0, kept, "saved"),))


def _embedding(layer: layers.Embedding, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels, height, numbers = shapes[0]
    if (channels, height) != (1, 1):
        raise ModelError(f"embedding: the input must be 1:1:numbers, got {format_shape(shapes[0])}")
    weights = {"weight": layer.size * layer.width}
    return Traits(shape=(1, numbers, layer.width), weights=weights, reads_input=Lifespan.GRADIENT)


def _lstm(layer: layers.Lstm, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    """Return the traits of an LSTM: four gates, and a cell of every step."""
    step_bytes = layer.unit * VALUE_BYTES
    cells = (
        LayerTensor("cells", shapes[0][1] * step_bytes, 0, Lifespan.FORWARD | Lifespan.GRADIENT, "saved"),
        LayerTensor("d cell", step_bytes, 0, Lifespan.GRADIENT, "scratch"),
    )
    return _recurrent("lstm", layer, 4, shapes[0], cells)


def _recurrent(kind: str, layer: layers.Lstm, count: int, shape: Shape, more: tuple[LayerTensor, ...]) -> Traits:
    """Return the traits of a layer with some gates over the time steps, and `more` tensors than those and the state."""
    channels, steps, features = shape
    if channels != 1:
        raise ModelError(f"{kind}: the input must be 1:time:features, got {format_shape(shape)}")
    unit, gates = layer.unit, count * layer.unit
    biases = () if not layer.bias else ("bias",) if layer.one_bias else ("bias_ih", "bias_hh")
    weights = {"weight_ih": features * gates, "weight_hh": unit * gates, **dict.fromkeys(biases, gates)}
    step_bytes = unit * VALUE_BYTES
    saved = Lifespan.FORWARD | Lifespan.GRADIENT
    inner = (
        LayerTensor("gates", count * steps * step_bytes, 0, saved, "saved"),
        *(() if layer.sequences else (LayerTensor("hidden", steps * step_bytes, 0, saved, "saved"),)),
        LayerTensor("d gates", count * steps * step_bytes, 0, Lifespan.BACKWARD, "scratch"),
        LayerTensor("d hidden", step_bytes, 0, Lifespan.GRADIENT, "scratch"),
        *more,
    )
    return Traits(
        shape=(1, steps if layer.sequences else 1, unit),
        weights=weights,
        macs=steps * gates * (features + unit),
        reads_input=Lifespan.GRADIENT,
        reads_output=Lifespan.GRADIENT if layer.sequences else NEVER,
        inner=inner,
    )


def _windows(shape: Shape, kernel: Pair, stride: Pair, padding: Padding) -> Pair:
    """Return how many windows fit along height and width."""
    _, height, width = shape
    if padding == "same":
        return math.ceil(height / stride[0]), math.ceil(width / stride[1])
    top, bottom, left, right = (0, 0, 0, 0) if padding == "valid" else padding
    padded = height + top + bottom, width + left + right
    if padded[0] < kernel[0] or padded[1] < kernel[1]:
        raise ModelError(
            f"a window of {kernel[0]},{kernel[1]} does not fit into an input of {padded[0]},{padded[1]} (padding "
            "included): give a smaller window or more padding"
        )
    return (padded[0] - kernel[0]) // stride[0] + 1, (padded[1] - kernel[1]) // stride[1] + 1


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(format_shape, shapes))


_RULES: Mapping[type, Callable[..., Traits]] = {
    layers.Input: _input,
    layers.FullyConnected: _fully_connected,
    layers.Conv2d: _conv2d,
    layers.Conv1d: _conv1d,
    layers.Pooling2d: _pooling2d,
    layers.BatchNormalization: _batch_normalization,
    layers.Activation: _activation,
    layers.Flatten: _flatten,
    layers.Addition: _addition,
    layers.Concat: _concat,
    layers.MultiOut: _multi_out,
    layers.Split: _split,
    layers.Dropout: _dropout,
    layers.Embedding: _embedding,
    layers.Lstm: _lstm,
    layers.Gru: lambda layer, shapes, _: _recurrent("gru", layer, 3, shapes[0], ()),
}
