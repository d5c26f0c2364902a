"""What the planner must know of a layer: shapes, bytes and multiply-accumulates. Values are 32-bit floats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tuner_nntrainer.network.layers import Shape
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
