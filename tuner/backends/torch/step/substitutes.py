"""Substitutes for modules and functions of a tail while its step is traced, computing the same."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(slots=True)
class Feed:
    """What the modules and functions of a tail that is being traced read in addition to their input.

    Attributes:
        weight: Of each sample; float32 [n].
        noise: Uniform in [0, 1), an array for each draw; None while the draws are being counted.
        shapes: Of the draws, as they were counted.
    """

    weight: torch.Tensor | None = None
    noise: list[torch.Tensor] | None = None
    shapes: list[tuple[int, ...]] = field(default_factory=list)


class _Drawn(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Random numbers of a tail as inputs: what dropouts of any kind, and stochastic depth, come down to."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self._feed = feed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.bernoulli_.float:
            return args[0].copy_(self._kept(*args))
        if func is torch.ops.aten.bernoulli.p:
            return self._kept(*args)
        if func is torch.ops.aten.rand.default:
            return self._drawn(args[0]).to((kwargs or {}).get("dtype"))
        return func(*args, **(kwargs or {}))

    def _kept(self, value: torch.Tensor, probability: float = 0.5) -> torch.Tensor:
        """Return 1 with a probability, where the noise is large enough, and 0 elsewhere."""
        return (self._drawn(value.shape) >= 1 - probability).to(value.dtype)

    def _drawn(self, shape: Sequence[int]) -> torch.Tensor:
        if self._feed.noise is None:
            self._feed.shapes.append(tuple(shape))
            return torch.zeros(tuple(shape))
        return self._feed.noise.pop(0)


#: Axes that an adaptive pooling is over.
_POOLS: Mapping[Any, list[int]] = {
    functional.adaptive_avg_pool1d: [-1],
    functional.adaptive_avg_pool2d: [-2, -1],
    functional.adaptive_avg_pool3d: [-3, -2, -1],
}


class _Plain(TorchFunctionMode):
    """Functions in plainer forms, which planner and ONNX can follow.

    Global pooling is a mean, as torch's form restrides maps; a weight norm, its formula; an LSTM, what it is without
    oneDNN, which has a layer of its own.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _POOLS:
            value, size = (*args, *(named[key] for key in ("input", "output_size") if key in named))
            if {1} == ({size} if isinstance(size, int) else set(size)):
                return value.mean(_POOLS[func], keepdim=True)
        if func is torch._weight_norm:  # noqa: SLF001 - torch names it so
            value, scale, axis = args
            return value * (scale / torch.norm_except_dim(value, 2, axis))
        if func is not torch.lstm:
            return func(*args, **named)
        (enabled, *_) = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        try:
            return func(*args, **named)
        finally:
            torch.backends.mkldnn.set_flags(_enabled=enabled, _fp32_precision=None)  # type: ignore[no-untyped-call]  # likewise


@contextmanager
def substituted(feed: Feed) -> Iterator[None]:
    """Let functions of a tail compute the same in forms that can be planned and exported.

    Dropouts read the feed's noise; attention and recurrent layers are made of plain operators.
    """
    with sdpa_kernel(SDPBackend.MATH), _Plain(), _Drawn(feed):
        yield


#: Added to a weight, it changes none but 0: what is divided by the sum then gives exactly 1, or 0.
LEAST_WEIGHT = 1e-30


class WeightedNorm(nn.Module):
    """A batch norm in training whose statistics leave out samples of weight zero."""

    num_batches_tracked: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, norm: _BatchNorm, feed: Feed) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        for name, value in norm.named_buffers():
            self.register_buffer(name, value)
        self.training = norm.training and norm.running_mean is not None  # whether running statistics move
        self._eps, self._momentum, self._feed = norm.eps, norm.momentum, feed

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the normalised value; moves the running statistics."""
        if self._feed.weight is None:
            raise ValueError("a weighted norm runs within a step")
        counted = self._feed.weight / (self._feed.weight + LEAST_WEIGHT)  # 0 or 1: statistics know no emphasis
        weight = counted.reshape(-1, *(1 for _ in value.shape[1:]))
        result: tuple[torch.Tensor, ...] = _Normalise.apply(value, weight, self._eps)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        normalised, mean, variance, count = result
        if self.training:
            flat, unbiased = mean.flatten(), (variance * (count / (count - 1))).flatten()
            self.num_batches_tracked.add_(1)
            share = 1 / self.num_batches_tracked.float() if self._momentum is None else self._momentum
            self.running_mean.add_((flat - self.running_mean) * share)
            self.running_var.add_((unbiased - self.running_var) * share)
        if self.weight is None:
            return normalised
        shape = (-1, *(1 for _ in value.shape[2:]))
        return normalised * self.weight.reshape(shape) + self.bias.reshape(shape)


class _Normalise(torch.autograd.Function):
    """Weighted normalisation over all but the channels, keeping its input alone for the gradient.

    With W = Σ w over samples and positions, mean μ = Σ w x / W and variance Σ w (x − μ)² / W, the gradient is
    (g − w (Σ g + x̂ Σ g x̂) / W) / σ: Ioffe and Szegedy (2015), section 3, with weights.
    """

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, ...]:
        """Return x̂, and the mean, the variance and the summed weight, which carry no gradient."""
        over = [axis for axis in range(value.ndim) if axis != 1]
        count = weight.sum() * (value[0, 0].numel())
        mean = (value * weight).sum(over, keepdim=True) / count
        centred = value - mean
        variance = (centred * centred * weight).sum(over, keepdim=True) / count
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(value, weight, mean, scale, count)
        ctx.mark_non_differentiable(mean, variance, count)
        return centred * scale, mean, variance, count

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of the input."""
        value, weight, mean, scale, count = ctx.saved_tensors
        gradient = gradients[0]
        over = [axis for axis in range(value.ndim) if axis != 1]
        normalised = (value - mean) * scale
        total = gradient.sum(over, keepdim=True)
        along = (gradient * normalised).sum(over, keepdim=True)
        return scale * (gradient - weight * ((total + normalised * along) / count)), None, None
