"""What each kind of layer computes, keeps and owns: shapes, bytes and multiply-accumulates, without a tensor.

The layers of NNTrainer's model files (arXiv 2206.04688, section 4.2). Shapes are ``(channels, height, width)`` of one
sample; values are 32-bit floats.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tuner.errors import ModelError
from tuner.planner.lifetimes import Lifespan

Shape = tuple[int, int, int]
Pair = tuple[int, int]
#: Rows and columns added at each side: top, bottom, left, right.
Padding = Literal["valid", "same"] | tuple[int, int, int, int]
Function = Literal["relu", "sigmoid", "tanh", "softmax"]
Pooling = Literal["max", "average", "global_max", "global_average"]
#: Whether a layer's output may take its input's memory: no; overwriting it; looking at it.
Sharing = Literal["none", "in-place", "view"]

VALUE_BYTES = 4
INDEX_BYTES = 4


@dataclass(frozen=True, slots=True)
class Input:
    """A batch from outside."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class FullyConnected:
    """A matrix product along the width."""

    unit: int
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Conv2d:
    """A convolution over height and width."""

    filters: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Padding = "valid"
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Pooling2d:
    """The largest or the mean value of windows, or of the whole map."""

    pooling: Pooling
    size: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Padding = "valid"


@dataclass(frozen=True, slots=True)
class BatchNormalization:
    """Normalisation of every channel over the batch; of the width where the input is a vector."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of the values; its backward pass reads its output, for relu one bit a value of it if `mask`."""

    function: Function
    mask: bool = False


@dataclass(frozen=True, slots=True)
class Flatten:
    """The same values as a vector."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The sum of all inputs."""


@dataclass(frozen=True, slots=True)
class Concat:
    """All inputs one after another, along axis 1 (channels), 2 (height) or 3 (width)."""

    axis: int = 1


@dataclass(frozen=True, slots=True)
class MultiOut:
    """The same tensor for several readers; their derivatives are summed."""

    outputs: int


@dataclass(frozen=True, slots=True)
class Lstm:
    """A long short-term memory over the height (time), reading the width (features)."""

    unit: int
    sequences: bool = False
    bias: bool = True


Operation = (
    Input
    | FullyConnected
    | Conv2d
    | Pooling2d
    | BatchNormalization
    | Activation
    | Flatten
    | Addition
    | Concat
    | MultiOut
    | Lstm
)


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor inside a layer, beside its inputs and outputs.

    Attributes:
        name: Inside the layer.
        sample_bytes: Its size for each sample of the batch.
        fixed_bytes: And what does not depend on the batch.
        lifespan: When the layer needs it, if its weights train.
        kind: As in `tuner.planner.lifetimes.Tensor`.
    """

    name: str
    sample_bytes: int
    fixed_bytes: int
    lifespan: Lifespan
    kind: Literal["saved", "scratch"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What the planner must know of a layer.

    Attributes:
        shape: Of each output, per sample.
        weights: Values of each learnable tensor, by name.
        state: Values of each tensor that is always kept but not learned, by name.
        macs: Multiply-accumulates of the forward pass, per sample; the gradient of the weights costs as many again,
            and so does the derivative of the input.
        reads_input: When the layer reads its input again, after the forward pass.
        reads_output: When it reads its output again.
        sharing: Whether the output may take the input's memory, and the input's derivative the output's derivative's.
        parts: What it keeps from the forward pass for the backward pass, and what it needs while computing.
    """

    shape: Shape
    weights: Mapping[str, int]
    state: Mapping[str, int]
    macs: int
    reads_input: Lifespan
    reads_output: Lifespan
    sharing: Sharing
    parts: tuple[Part, ...]


NEVER = Lifespan(0)


def traits(layer: Operation, shapes: Sequence[Shape], *, trainable: bool = True) -> Traits:
    """Return what the planner must know of a layer.

    Args:
        layer: What it computes.
        shapes: Of its inputs, per sample; none for an `Input`.
        trainable: Whether its weights train; a batch norm that does not uses its running statistics.

    Raises:
        ModelError: The layer cannot take inputs of these shapes.
    """
    many = isinstance(layer, Addition | Concat)
    if not many and len(shapes) != (0 if isinstance(layer, Input) else 1):
        raise ModelError(f"a layer of this type reads one tensor, but {len(shapes)} are given to it")
    return _RULES[type(layer)](layer, shapes, trainable)


def values(shape: Sequence[int]) -> int:
    """Return how many values a shape holds."""
    return math.prod(shape)


def said_shape(shape: Shape) -> str:
    """Return a shape as model files write it."""
    return ":".join(map(str, shape))


def _traits(  # one keyword a field: most layers leave most of them out
    shape: Shape,
    *,
    weights: Mapping[str, int] | None = None,
    state: Mapping[str, int] | None = None,
    macs: int = 0,
    reads_input: Lifespan = NEVER,
    reads_output: Lifespan = NEVER,
    sharing: Sharing = "none",
    parts: tuple[Part, ...] = (),
) -> Traits:
    return Traits(shape, weights or {}, state or {}, macs, reads_input, reads_output, sharing, parts)


def _input(layer: Input, _shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return _traits(layer.shape)


def _fully_connected(layer: FullyConnected, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    *rows, width = shapes[0]
    weights = {"weight": width * layer.unit, **({"bias": layer.unit} if layer.bias else {})}
    macs = values(rows) * width * layer.unit
    return _traits((rows[0], rows[1], layer.unit), weights=weights, macs=macs, reads_input=Lifespan.GRADIENT)


def _conv2d(layer: Conv2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    height, width = _windows(shapes[0], layer.kernel, layer.stride, layer.padding)
    each = channels * values(layer.kernel)
    weights = {"weight": layer.filters * each, **({"bias": layer.filters} if layer.bias else {})}
    shape = (layer.filters, height, width)
    return _traits(shape, weights=weights, macs=values(shape) * each, reads_input=Lifespan.GRADIENT)


def _pooling2d(layer: Pooling2d, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels = shapes[0][0]
    whole = layer.pooling.startswith("global")
    height, width = (1, 1) if whole else _windows(shapes[0], layer.size, layer.stride, layer.padding)
    shape = (channels, height, width)
    keeps = layer.pooling.endswith("max")
    index = Part("index", values(shape) * INDEX_BYTES, 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return _traits(shape, parts=(index,) if keeps else ())


def _batch_normalization(_layer: BatchNormalization, shapes: Sequence[Shape], trainable: bool) -> Traits:
    channels, _, width = shapes[0]
    each = channels if channels > 1 else width
    parts = (
        Part("normalised", values(shapes[0]) * VALUE_BYTES, 0, Lifespan.ITERATION, "saved"),
        Part("statistics", 0, 2 * each * VALUE_BYTES, Lifespan.ITERATION, "saved"),
    )
    return _traits(
        shapes[0],
        weights={"gamma": each, "beta": each},
        state={"mean": each, "variance": each},
        sharing="in-place",
        parts=parts if trainable else (),
    )


def _activation(layer: Activation, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if not layer.mask or layer.function != "relu":
        return _traits(shapes[0], reads_output=Lifespan.DERIVATIVE, sharing="in-place")
    mask = Part("mask", -(-values(shapes[0]) // 8), 0, Lifespan.FORWARD | Lifespan.DERIVATIVE, "saved")
    return _traits(shapes[0], sharing="in-place", parts=(mask,))


def _flatten(_layer: Flatten, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return _traits((1, 1, values(shapes[0])), sharing="view")


def _addition(_layer: Addition, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    if len(set(shapes)) != 1:
        raise ModelError(f"addition wants inputs of one shape, but they are {_listed(shapes)}")
    return _traits(shapes[0])


def _concat(layer: Concat, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    at = layer.axis - 1
    if len({shape[:at] + shape[at + 1 :] for shape in shapes}) != 1:
        raise ModelError(
            f"concat along axis {layer.axis} wants inputs that differ in that axis only, but they are {_listed(shapes)}"
        )
    joined = list(shapes[0])
    joined[at] = sum(shape[at] for shape in shapes)
    return _traits((joined[0], joined[1], joined[2]))


def _multi_out(_layer: MultiOut, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    return _traits(shapes[0], sharing="view")


def _lstm(layer: Lstm, shapes: Sequence[Shape], _trainable: bool) -> Traits:
    channels, steps, features = shapes[0]
    if channels != 1:
        raise ModelError(f"lstm wants an input of 1:time:features, but it is {said_shape(shapes[0])}")
    unit = layer.unit
    gates = 4 * unit
    weights = {"weight_ih": features * gates, "weight_hh": unit * gates, **({"bias": gates} if layer.bias else {})}
    every, once = steps * unit * VALUE_BYTES, unit * VALUE_BYTES
    kept = Lifespan.FORWARD | Lifespan.GRADIENT
    parts = (
        Part("gates", 4 * every, 0, kept, "saved"),
        Part("cells", every, 0, kept, "saved"),
        *(() if layer.sequences else (Part("hidden", every, 0, kept, "saved"),)),
        Part("d gates", 4 * every, 0, Lifespan.BACKWARD, "scratch"),
        Part("d hidden", once, 0, Lifespan.GRADIENT, "scratch"),
        Part("d cell", once, 0, Lifespan.GRADIENT, "scratch"),
    )
    return _traits(
        (1, steps if layer.sequences else 1, unit),
        weights=weights,
        macs=steps * gates * (features + unit),
        reads_input=Lifespan.GRADIENT,
        reads_output=Lifespan.GRADIENT if layer.sequences else NEVER,
        parts=parts,
    )


def _windows(shape: Shape, kernel: Pair, stride: Pair, padding: Padding) -> Pair:
    """Return how many windows fit along height and width."""
    _, height, width = shape
    if padding == "same":
        return -(-height // stride[0]), -(-width // stride[1])
    top, bottom, left, right = (0, 0, 0, 0) if padding == "valid" else padding
    padded = height + top + bottom, width + left + right
    if padded[0] < kernel[0] or padded[1] < kernel[1]:
        raise ModelError(
            f"a window of {kernel[0]},{kernel[1]} does not fit into {padded[0]},{padded[1]} (padding included)"
        )
    return (padded[0] - kernel[0]) // stride[0] + 1, (padded[1] - kernel[1]) // stride[1] + 1


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(said_shape, shapes))


_RULES: Mapping[type, Callable[..., Traits]] = {
    Input: _input,
    FullyConnected: _fully_connected,
    Conv2d: _conv2d,
    Pooling2d: _pooling2d,
    BatchNormalization: _batch_normalization,
    Activation: _activation,
    Flatten: _flatten,
    Addition: _addition,
    Concat: _concat,
    MultiOut: _multi_out,
    Lstm: _lstm,
}
FUNCTIONS: tuple[Function, ...] = get_args(Function)
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
