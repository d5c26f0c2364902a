"""How convolutions and pooling slide over maps of one or two dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution or pooling slides.

    Attributes:
        kernel: Extent by axis, likewise the others.
        stride: Between outputs.
        padding: On both sides.
        dilation: Between elements of the kernel.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def pointwise(self) -> bool:
        """Whether every output comes from the one input at its place."""
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def trailing(self, lead: int) -> "Window":
        """Return how it slides along all axes but the first `lead`."""
        return Window(self.kernel[lead:], self.stride[lead:], self.padding[lead:], self.dilation[lead:])

    def attributes(self) -> dict[str, Any]:
        """Return what ONNX calls these."""
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": (*self.padding, *self.padding),
            "dilations": self.dilation,
        }


def wide(values: Any, axes: int, default: int) -> tuple[int, ...]:
    """Return what torch gives as one number, several or none, one for each axis."""
    given = list(values) if values else [default]
    return tuple(int(value) for value in (given * axes if len(given) == 1 else given))


def sliding(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Window:
    """Return a window of torch's arguments."""
    axes = len(kernel)
    return Window(tuple(kernel), wide(stride, axes, 1), wide(padding, axes, 0), wide(dilation, axes, 1))
