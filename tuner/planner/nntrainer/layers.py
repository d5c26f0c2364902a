"""The layers of NNTrainer's model files (arXiv 2206.04688, section 4.2) as data: what each computes.

Shapes are ``(channels, height, width)`` of one sample.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Shape = tuple[int, int, int]
#: Height and width.
Pair = tuple[int, int]
#: Rows and columns added at each side: top, bottom, left, right.
Padding = Literal["valid", "same"] | tuple[int, int, int, int]
Function = Literal["relu", "sigmoid", "tanh", "softmax"]
Pooling = Literal["max", "average", "global_max", "global_average"]
FUNCTIONS: tuple[Function, ...] = get_args(Function)
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


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
    """Normalisation of every channel over the batch; of every value where the input is a vector."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each value.

    Attributes:
        function: Its name.
        mask: Whether the backward pass of relu reads one bit per value instead of the output.
    """

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
    """All inputs one after another along axis 1 (channels), 2 (height) or 3 (width)."""

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


def format_shape(shape: Shape) -> str:
    """Return a shape in the notation of model files: ``"3:224:224"``."""
    return ":".join(map(str, shape))
