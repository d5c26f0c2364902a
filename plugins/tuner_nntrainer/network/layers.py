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
class Conv1d:
    """A convolution over the width of an input of height 1."""

    filters: int
    kernel: int
    stride: int = 1
    padding: Padding = "valid"
    bias: bool = True

    @property
    def flat(self) -> Conv2d:
        """The same convolution over height and width."""
        return Conv2d(self.filters, (1, self.kernel), (1, self.stride), self.padding, self.bias)


@dataclass(frozen=True, slots=True)
class Pooling2d:
    """The largest or the mean value of windows, or of the whole map."""

    pooling: Pooling
    size: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Padding = "valid"


@dataclass(frozen=True, slots=True)
class BatchNormalization:
    """Normalisation of every channel over the batch; of every value where the input is a vector.

    Attributes:
        epsilon: Added to the variance.
        momentum: Share of the running statistics that a step keeps.
    """

    epsilon: float = 1e-3
    momentum: float = 0.99


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
class Split:
    """Equal parts of a tensor along axis 1 (channels), 2 (height) or 3 (width), each an output.

    Attributes:
        axis: The axis.
        number: Number of parts; None for parts of size 1.
        outputs: Number of parts that are read.
    """

    axis: int
    number: int | None = None
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Dropout:
    """Each value set to 0 with a probability, and the others scaled up; nothing after training."""

    rate: float


@dataclass(frozen=True, slots=True)
class Embedding:
    """A row of a table for each number along the width: 1:1:numbers to 1:numbers:width.

    Attributes:
        size: Rows of the table; the numbers are whole, from 0 to below it.
        width: Values of a row.
    """

    size: int
    width: int


@dataclass(frozen=True, slots=True)
class Lstm:
    """A long short-term memory over the height (time), reading the width (features).

    Attributes:
        unit: Hidden values.
        sequences: Whether the output is the hidden state after every step, not after the last.
        bias: Whether there are biases.
        one_bias: Whether the gates have one bias, not one of the input and one of the hidden state.
    """

    unit: int
    sequences: bool = False
    bias: bool = True
    one_bias: bool = False


@dataclass(frozen=True, slots=True)
class Gru(Lstm):
    """A gated recurrent unit, which has what an LSTM has.

    Attributes:
        reset_after: Whether the reset gate multiplies the candidate's matrix product, not what is multiplied.
    """

    reset_after: bool = True


Operation = (
    Input
    | FullyConnected
    | Conv2d
    | Conv1d
    | Pooling2d
    | BatchNormalization
    | Activation
    | Flatten
    | Addition
    | Concat
    | MultiOut
    | Split
    | Dropout
    | Embedding
    | Lstm
    | Gru
)


def format_shape(shape: Shape) -> str:
    """Return a shape in the notation of model files: ``"3:224:224"``."""
    return ":".join(map(str, shape))
