"""Substitutes for modules and functions of a tail while its step is traced, computing the same."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode


@dataclass(slots=True)
class Feed:
    """What the modules of a tail that is being traced read in addition to their input."""

    weight: torch.Tensor | None = None
    noise: list[torch.Tensor] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)


class Dropout(nn.Module):
    """A dropout whose randomness is an input: whole channels for Dropout1d to 3d, as torch has it."""

    def __init__(self, module: nn.Module, probability: float, feed: Feed) -> None:
        super().__init__()
        self._p = probability
        self._channels = not isinstance(module, nn.Dropout)
        self._feed = feed

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value with elements or channels dropped and the others scaled up."""
        feed = self._feed
        if not feed.noise:  # shapes are being collected
            spread = value.shape[2:] if self._channels else ()
            feed.shapes.append((*value.shape[: value.ndim - len(spread)], *(1 for _ in spread)))
            return value
        noise = feed.noise.pop(0)
        scale = 1 / (1 - self._p) if self._p < 1 else 0.0
        return value * ((noise >= self._p).to(value.dtype) * scale)


class GlobalPools(TorchFunctionMode):
    """Global average pooling as a mean: torch's own form restrides maps, which neither planner nor ONNX can follow."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is functional.adaptive_avg_pool2d:
            value, size = (*args, *(named[key] for key in ("input", "output_size") if key in named))
            if {1} == ({size} if isinstance(size, int) else set(size)):
                return value.mean((-2, -1), keepdim=True)
        return func(*args, **named)


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
            self._move(mean.flatten(), (variance * (count / (count - 1))).flatten())
        if self.weight is None:
            return normalised
        shape = (-1, *(1 for _ in value.shape[2:]))
        return normalised * self.weight.reshape(shape) + self.bias.reshape(shape)

    def _move(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share = 1 / self.num_batches_tracked.float() if self._momentum is None else self._momentum
        self.running_mean.add_((mean - self.running_mean) * share)
        self.running_var.add_((variance - self.running_var) * share)


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
