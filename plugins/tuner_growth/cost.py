"""FLOPs, weights and parameters of a network as functions of its growable widths; no tensor library.

Source: MDLdroidLite's controller: convolutions cost (2n − 1)·positions·out with n = in·kernel, linears 2·in·out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

#: Share of size, relative to FLOPs, in a layer's cost.
CONVOLUTION_BETA = 0.2
LINEAR_BETA = 0.8
#: Value of `LayerCost.out` and `into`: not a growable width.
FIXED = -1


@dataclass(frozen=True, slots=True)
class LayerCost:
    """A layer whose input or output may be a growable width.

    Attributes:
        name: Module's name.
        linear: Whether it is a linear layer.
        out: Index of the growable width of its outputs, or `FIXED`.
        into: Index of the growable width of its inputs, or `FIXED`.
        out_width: Number of outputs, where it is fixed.
        in_width: Number of input channels, where it is fixed; 1 for a depthwise convolution.
        kernel: Weights of one pair of an output and an input channel: kh·kw, or the flattened positions of a linear.
        positions: Number of places the kernel is applied at, per sample.
        per_output: Learnable scalars of an output channel in addition to the kernel: biases and norms.
    """

    name: str
    linear: bool = field(kw_only=True)
    out: int
    into: int
    out_width: int
    in_width: int
    kernel: int
    positions: int
    per_output: int = 0

    def shape(self, widths: Sequence[int]) -> tuple[int, int]:
        """Return the numbers of outputs and inputs at some widths."""
        outputs = self.out_width if self.out == FIXED else widths[self.out]
        return outputs, self.in_width if self.into == FIXED else widths[self.into]

    def flops(self, widths: Sequence[int]) -> int:
        """Return the FLOPs of one sample's forward pass, by the controller's rule."""
        outputs, inputs = self.shape(widths)
        if self.linear:
            return 2 * outputs * inputs * self.kernel
        return (2 * inputs * self.kernel - 1) * self.positions * outputs

    def size(self, widths: Sequence[int]) -> int:
        """Return the number of weights, without biases."""
        outputs, inputs = self.shape(widths)
        return outputs * inputs * self.kernel


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """All layers with weights of a network."""

    layers: tuple[LayerCost, ...]

    def flops(self, widths: Sequence[int]) -> int:
        """Return the FLOPs of one sample's forward pass, by the controller's rule."""
        return sum(layer.flops(widths) for layer in self.layers)

    def parameters(self, widths: Sequence[int]) -> int:
        """Return the number of learnable scalars."""
        return sum(layer.size(widths) + layer.per_output * layer.shape(widths)[0] for layer in self.layers)

    def of_group(self, group: int, widths: Sequence[int]) -> float:
        """Return C(s) = (1 − β)·FLOPs + β·size over the layers that produce or consume a width.

        Args:
            group: Index of the width.
            widths: All widths.
        """
        touched = [layer for layer in self.layers if group in {layer.out, layer.into}]
        beta = LINEAR_BETA if self.is_linear(group) else CONVOLUTION_BETA
        flops = sum(layer.flops(widths) for layer in touched)
        return (1 - beta) * flops + beta * sum(layer.size(widths) for layer in touched)

    def is_linear(self, group: int) -> bool:
        """Return whether linear layers produce the width of this index."""
        return all(layer.linear for layer in self.layers if layer.out == group)
