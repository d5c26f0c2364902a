"""Gates that lead newborn channels in after a growth.

Source: MDLdroidLite's gate unit (GCU). Its Meta gates multiply every channel's output before the activation: from λ for
existing channels, whose weights were divided by λ, and from 1 for new ones, until both meet at (o + λ·a)/(o + a).

Decided here: the gates move in the weights themselves, where the same factors have the same effect. Weights of W/λ
behind a gate of λ would train λ times as fast as before, as Adam's steps do not scale with weights. The RI gates, which
divide gradients, are left out for the same reason: Adam's steps do not scale with gradients either.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

#: Optimiser steps between two moves of the gates.
MOVE_EVERY = 10


class Gates:
    """The gates of one width after a growth.

    Args:
        body: Grown network.
        size: Number of channels before the growth.
        scales: λ by module.
        steps: Optimiser steps until existing and new channels' gates meet.
        done: Steps of these so far.
    """

    def __init__(self, body: nn.Module, size: int, scales: Mapping[str, float], steps: int, done: int = 0) -> None:
        self._body, self._size, self._scales, self._steps, self._done = body, size, dict(scales), steps, done

    def after_update(self) -> None:
        """Move the gates, every `MOVE_EVERY` steps and after the last one."""
        self._done += 1
        if self._done > self._steps or (self._done % MOVE_EVERY and self._done < self._steps):
            return
        since = min(MOVE_EVERY, (self._done - 1) % MOVE_EVERY + 1)
        with torch.no_grad():
            for name, scale in self._scales.items():
                for parameter in self._body.get_submodule(name).parameters(recurse=False):
                    share = self._size / len(parameter)
                    before, after = (
                        meta_gates(scale, share, done / self._steps) for done in (self._done - since, self._done)
                    )
                    parameter[: self._size] *= after[0] / before[0]
                    parameter[self._size :] *= after[1] / before[1]

    def state(self) -> dict[str, Any]:
        """Return what the gates are made of."""
        return {"size": self._size, "scales": self._scales, "steps": self._steps, "done": self._done}


def meta_gates(scale: float, share: float, progress: float) -> tuple[float, float]:
    """Return the gates of existing and of new channels.

    Args:
        scale: λ, where existing channels' gates begin.
        share: Existing channels, as a fraction of all.
        progress: Steps done, as a fraction of all steps.
    """
    apart = (scale - 1) * progress
    return scale - apart * share, 1 + apart * (1 - share)
