"""Kinds of modules and functions that cutting, freezing and widening a model distinguish."""

from torch import nn

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm)  # noqa: SLF001 - torch has no public base class of its norms
BARE = (nn.Linear, nn.modules.conv._ConvNd)  # noqa: SLF001 - torch has no public base class of its convolutions
RANDOM = (nn.modules.dropout._DropoutNd,)  # noqa: SLF001 - torch has no public base class of its dropouts
ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid,
    nn.Tanh, nn.Mish, nn.Softplus, nn.Hardtanh, nn.Identity,
)  # fmt: skip
ACTIVATION_NAMES = frozenset({"relu", "relu_", "relu6", "gelu", "silu", "sigmoid", "tanh", "hardswish", "leaky_relu"})
