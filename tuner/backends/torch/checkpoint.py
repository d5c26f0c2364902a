"""Where a trial goes on that was cut short: written after every epoch of a tail that changes while it trains.

Other trials start again; their steps alone would give the same weights, and a file an epoch is not free.
"""

import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from tuner.backends.base import CHECKPOINT
from tuner.plan import TrialPlan


@runtime_checkable
class Resumable(Protocol):
    """A loop that can go on."""

    def state(self) -> dict[str, Any]:
        """Return what an epoch starts from, beside the weights."""

    def restore(self, state: Mapping[str, Any], /) -> None:
        """Go on from it."""


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A trial between two epochs.

    Attributes:
        key: Of the plan and the seed.
        tail: Weights, of any width.
        loop: Of `Resumable.state`.
        changes: State of the generator that augments.
        noise: State of the tensor library's generator, uint8.
        epochs: Their log so far.
        train_seconds: Spent so far.
    """

    key: str
    tail: dict[str, torch.Tensor]
    loop: dict[str, Any]
    changes: dict[str, Any]
    noise: torch.Tensor
    epochs: list[dict[str, float]]
    train_seconds: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trial's file, beside its weights.

    Attributes:
        path: Of the file.
        key: Of the plan and the seed.
        kept: Whether this trial keeps one.
    """

    path: Path
    key: str
    kept: bool

    @classmethod
    def of(cls, plan: TrialPlan, seed: int, weights: Path) -> "Checkpoint":
        """Return the one of a trial that will write `weights`."""
        return cls(weights.with_name(CHECKPOINT), f"{plan.key()}/{seed}", bool(plan.shape))

    def read(self) -> Saved | None:
        """Return where the trial was; None where it begins, or where the file is another trial's or torn."""
        if not self.kept:
            return None
        try:
            saved = Saved(**torch.load(self.path, weights_only=True))
        except (OSError, RuntimeError, ValueError, TypeError, EOFError, pickle.UnpicklingError):
            return None
        return saved if saved.key == self.key else None

    def write(
        self,
        tail: nn.Module,
        loop: object,
        changes: np.random.Generator,
        epochs: Sequence[Mapping[str, float]],
        train_seconds: float,
    ) -> None:
        """Write where the trial is, whole or not at all, readable by the user only."""
        if not self.kept or not isinstance(loop, Resumable):
            return
        state, noise = dict(changes.bit_generator.state), torch.get_rng_state()
        saved = Saved(self.key, tail.state_dict(), loop.state(), state, noise, list(map(dict, epochs)), train_seconds)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            torch.save({name: getattr(saved, name) for name in Saved.__dataclass_fields__}, file)
        part.replace(self.path)

    def clear(self) -> None:
        """Forget where the trial was: it is over."""
        self.path.unlink(missing_ok=True)


def restored(loop: object, changes: np.random.Generator, saved: Saved | None) -> list[dict[str, float]]:
    """Let a new loop go on where the trial was; return the log so far."""
    if saved is None or not isinstance(loop, Resumable):
        return []
    loop.restore(saved.loop)
    changes.bit_generator.state = saved.changes
    torch.set_rng_state(saved.noise)
    return saved.epochs


def since_best(epochs: Sequence[Mapping[str, float]]) -> int:
    """Return how many scored epochs there were since the best local accuracy."""
    scores = [epoch["local_accuracy"] for epoch in epochs if "local_accuracy" in epoch]
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0
