"""The traits of each kind of layer, without a tensor.

NNTrainer (arXiv 2206.04688), section 4.1.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from tuner.errors import ModelError
from tuner_nntrainer.network.layers import (
    Activation,
    Addition,
    BatchNormalization,
    Concat,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    FullyConnected,
    Gru,
    Input,
    Lstm,
    MultiOut,
    Operation,
    Padding,
    Pair,
    Pooling2d,
    Shape,
    Split,
    format_shape,
)
from tuner_nntrainer.network.lifetimes import Lifespan
from tuner_nntrainer.network.traits import INDEX_BYTES, NEVER, VALUE_BYTES, LayerTensor, Traits, values


def lstm(layer: Lstm, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    """Return the traits of an LSTM: four gates, and a cell of every step."""
    step_bytes = layer.unit * VALUE_BYTES
    cells = (
        LayerTensor("cells", shapes[0][1] * step_bytes, 0, Lifespan.FORWARD | Lifespan.GRADIENT, "saved"),
        LayerTensor("d cell", step_bytes, 0, Lifespan.GRADIENT, "scratch"),
    )
    return _recurrent("lstm", layer, 4, shapes[0], cells)


def gru(layer: Gru, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    """Return the traits of a GRU: three gates."""
    return _recurrent("gru", layer, 3, shapes[0], ())


def _recurrent(kind: str, layer: Lstm | Gru, count: int, shape: Shape, more: tuple[LayerTensor, ...]) -> Traits:
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


def traits(layer: Operation, shapes: Sequence[Shape], *, trainable: bool = True) -> Traits:
    """Return the traits of a layer.

    Args:
        layer: Operation of the layer.
        shapes: Shapes of its inputs, per sample; none for an `Input`.
        trainable: Whether its weights train; a batch norm that does not uses its running statistics.

    Raises:
        ModelError: The layer cannot take inputs of these shapes.
    """
    many = isinstance(layer, Addition | Concat)
    if not many and len(shapes) != (0 if isinstance(layer, Input) else 1):
        raise ModelError(f"a layer of this type reads one tensor, but {len(shapes)} are given to it")
    return _RULES[type(layer)](layer, shapes, trainable)


def _input(layer: Input, _shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=layer.shape)


def _fully_connected(layer: FullyConnected, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    *rows, width = shapes[0]
    weights = {"weight": width * layer.unit, **({"bias": layer.unit} if layer.bias else {})}
    macs = values(rows) * width * layer.unit
    return Traits(shape=(rows[0], rows[1], layer.unit), weights=weights, macs=macs, reads_input=Lifespan.GRADIENT)


def _conv2d(layer: Conv2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    height, width = _windows(shapes[0], layer.kernel, layer.stride, layer.padding)
    window = channels * values(layer.kernel)
    weights = {"weight": layer.filters * window, **({"bias": layer.filters} if layer.bias else {})}
    shape = (layer.filters, height, width)
    return Traits(shape=shape, weights=weights, macs=values(shape) * window, reads_input=Lifespan.GRADIENT)


def _conv1d(layer: Conv1d, shapes: Sequence[Shape], trainable: bool) -> Traits:
    if shapes[0][1] != 1:
        raise ModelError(f"conv1d: the input must be channels:1:width, got {format_shape(shapes[0])}")
    return _conv2d(layer.flat, shapes, trainable)


def _pooling2d(layer: Pooling2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    whole = layer.pooling.startswith("global")
    height, width = (1, 1) if whole else _windows(shapes[0], layer.size, layer.stride, layer.padding)
    shape = (channels, height, width)
    if not layer.pooling.endswith("max"):
        return Traits(shape=shape)
    index = LayerTensor("index", values(shape) * INDEX_BYTES, 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return Traits(shape=shape, inner=(index,))


def _batch_normalization(_layer: BatchNormalization, shapes: Sequence[Shape], trainable: bool) -> Traits:
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


def _activation(layer: Activation, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if not layer.mask or layer.function != "relu":
        return Traits(shape=shapes[0], reads_output=Lifespan.DERIVATIVE, sharing="in-place")
    mask = LayerTensor("mask", math.ceil(values(shapes[0]) / 8), 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return Traits(shape=shapes[0], sharing="in-place", inner=(mask,))


def _flatten(_layer: Flatten, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=(1, 1, values(shapes[0])), sharing="view")


def _addition(_layer: Addition, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if len(set(shapes)) != 1:
        raise ModelError(f"addition: inputs must have one shape, got {_listed(shapes)}")
    return Traits(shape=shapes[0])


def _concat(layer: Concat, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    at = layer.axis - 1
    if len({shape[:at] + shape[at + 1 :] for shape in shapes}) != 1:
        raise ModelError(f"concat along axis {layer.axis}: inputs must differ in that axis only, got {_listed(shapes)}")
    joined = list(shapes[0])
    joined[at] = sum(shape[at] for shape in shapes)
    return Traits(shape=(joined[0], joined[1], joined[2]))


def _multi_out(_layer: MultiOut, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return Traits(shape=shapes[0], sharing="view")


def _split(layer: Split, shapes: Sequence[Shape], _trainable: bool) -> Traits:
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


def _dropout(_layer: Dropout, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    kept = Lifespan.FORWARD | Lifespan.DERIVATIVE
    return Traits(shape=shapes[0], inner=(LayerTensor("mask", values(shapes[0]) * VALUE_BYTES, 0, kept, "saved"),))


def _embedding(layer: Embedding, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels, height, numbers = shapes[0]
    if (channels, height) != (1, 1):
        raise ModelError(f"embedding: the input must be 1:1:numbers, got {format_shape(shapes[0])}")
    weights = {"weight": layer.size * layer.width}
    return Traits(shape=(1, numbers, layer.width), weights=weights, reads_input=Lifespan.GRADIENT)


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
    Input: _input,
    FullyConnected: _fully_connected,
    Conv2d: _conv2d,
    Conv1d: _conv1d,
    Pooling2d: _pooling2d,
    BatchNormalization: _batch_normalization,
    Activation: _activation,
    Flatten: _flatten,
    Addition: _addition,
    Concat: _concat,
    MultiOut: _multi_out,
    Split: _split,
    Dropout: _dropout,
    Embedding: _embedding,
    Lstm: lstm,
    Gru: gru,
}
