"""Gates that lead newborn channels in, for one epoch after a growth.

Source: MDLdroidLite's gate unit (GCU): a Meta gate on every channel's output before the activation, an RI gate on its
gradient. Decided here: when the two Meta gates have met, at the end of the epoch, they are folded into the weights.
The RI gate follows its objective, min |CS of existing − CS of new|, directly; the research code's table of six cases
is not documented to the point where it could be repeated.
"""

import torch
from torch import nn

from tuner_growth.torch.widths import Width

MOMENTUM = 0.95


class Gates:
    """The gates of one width after a growth.

    Args:
        body: Grown network.
        width: Width that grew, with its size before the growth.
        meta: Meta gates by module, float32 [channels]: λ for existing channels, 1 for new ones.
        steps: Optimiser steps until both meet.

    Attributes:
        size: Number of channels before the growth.
        initial: Meta gates at the beginning, by module.
    """

    def __init__(self, body: nn.Module, width: Width, meta: dict[str, torch.Tensor], steps: int) -> None:
        self._modules = {name: body.get_submodule(name) for name in meta}
        self._meta = {name: gate.clone() for name, gate in meta.items()}
        self.size, self.initial, self._left = width.size, meta, steps
        first = next(iter(meta.values()))
        bound = 2 * max(float(first[0]), 1 / float(first[0]))
        self._bounds = (1 / bound, bound)
        self._ratio = [float(first[0]), 1.0]  # RI of existing and of new channels
        self._momentum = [0.0, 0.0]
        self._last: list[float] | None = None
        self._hooks = [module.register_forward_hook(self._hook(name)) for name, module in self._modules.items()]

    def before_update(self, saliency: torch.Tensor) -> None:
        """Divide gradients by the RI gates, which move towards equal saliency of existing and new channels.

        Args:
            saliency: Saliency of every channel in the batch, float32 [channels].
        """
        means = [float(saliency[: self.size].mean()), float(saliency[self.size :].mean())]
        if self._last is not None:
            self._momentum = [
                MOMENTUM * momentum + (1 - MOMENTUM) * (mean - last)
                for momentum, mean, last in zip(self._momentum, means, self._last, strict=True)
            ]
            signs = (1, -1) if means[0] > means[1] else (-1, 1)  # the more salient group takes smaller steps
            low, high = self._bounds
            self._ratio = [
                min(high, max(low, ratio + sign * abs(momentum)))
                for ratio, sign, momentum in zip(self._ratio, signs, self._momentum, strict=True)
            ]
        self._last = means
        for module in self._modules.values():
            for parameter in module.parameters(recurse=False):
                if parameter.grad is not None:
                    parameter.grad[: self.size] /= self._ratio[0]
                    parameter.grad[self.size :] /= self._ratio[1]

    def after_update(self) -> None:
        """Move the Meta gates one step towards each other; they meet at (o + λ·a)/(o + a)."""
        for gate in self._meta.values():
            step = float(gate[0] - gate[-1]) / max(self._left, 1)
            share = self.size / len(gate)
            gate[: self.size] -= step * share
            gate[self.size :] += step * (1 - share)
        self._left -= 1

    def fold(self) -> None:
        """Multiply the gates into weights and biases, and remove them: outputs stay as they are."""
        for hook in self._hooks:
            hook.remove()
        with torch.no_grad():
            for name, module in self._modules.items():
                for parameter in module.parameters(recurse=False):
                    parameter.mul_(self._meta[name].reshape(-1, *[1] * (parameter.ndim - 1)))

    def _hook(self, name: str) -> "_Multiply":
        return _Multiply(self._meta[name])


class _Multiply:
    """A forward hook that multiplies an output's channels with a gate."""

    def __init__(self, gate: torch.Tensor) -> None:
        self._gate = gate

    def __call__(self, module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - a hook's
        # the gate changes in place between steps, so a step's graph gets a copy
        return output * self._gate.clone().reshape(-1, *[1] * (output.ndim - 2))
