"""How convolutions and pooling slide over maps of one or two dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner_onnx_steps.torch.graph import Graph


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution or pooling slides.

    Attributes:
        kernel: Extent by axis, likewise the others.
        stride: Distance between outputs.
        padding: Padding on both sides.
        dilation: Distance between elements of the kernel.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def pointwise(self) -> bool:
        """Whether every output comes from the one input at its place."""
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def reached(self, outputs: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the least maps that give maps of some sizes."""
        slides = zip(outputs, self.stride, self.padding, self.dilation, self.kernel, strict=True)
        return tuple((size - 1) * s - 2 * p + d * (k - 1) + 1 for size, s, p, d, k in slides)

    def trailing(self, lead: int) -> "Window":
        """Return how it slides along all axes but the first `lead`."""
        return Window(self.kernel[lead:], self.stride[lead:], self.padding[lead:], self.dilation[lead:])

    def flat(self) -> "Window":
        """Return how it slides over maps whose first axis is one line if there is none."""
        sizes = (self.kernel, 1), (self.stride, 1), (self.padding, 0), (self.dilation, 1)
        return Window(*((default, *values)[-2:] for values, default in sizes))

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
    listed = list(values) if values else [default]
    return tuple(int(value) for value in (listed * axes if len(listed) == 1 else listed))


def sliding(kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Window:
    """Return a window of torch's arguments."""
    axes = len(kernel)
    return Window(tuple(kernel), wide(stride, axes, 1), wide(padding, axes, 0), wide(dilation, axes, 1))


def shift(graph: Graph, maps: str, window: Window, offsets: Sequence[int], outputs: Sequence[int]) -> str:
    """Return what one element of a kernel sees of padded maps, along as many axes as it has offsets."""
    if not offsets:
        return maps
    slides = list(zip(offsets, window.dilation, window.stride, outputs, strict=False))
    begin = [offset * dilation for offset, dilation, _, _ in slides]
    end = [offset * dilation + (size - 1) * stride + 1 for offset, dilation, stride, size in slides]
    bounds = (begin, end, range(2, 2 + len(slides)), [stride for _, _, stride, _ in slides])
    return graph.op("Slice", maps, *(graph.integers(list(values)) for values in bounds))
