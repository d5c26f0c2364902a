"""Checkpoints: where a trial continues after an interruption, for tails that change while they train.

One is written after every epoch. Other trials start again: their steps alone give the same weights, and a file an epoch
is not free.
"""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.backends.base import CHECKPOINT
from tuner.files import private_file
from tuner.plan.trial import TrialPlan
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import Entry, TrainingLog


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """A trial between two epochs.

    Attributes:
        key: Plan's key and the seed.
        tail: Tail's state dictionary, of any shapes.
        loop: Loop's state; see `tuner.training.epoch.EpochLoop.state`.
        changes: State of the generator that augments.
        noise: State of PyTorch's own generator, uint8.
        epochs: Log so far.
        train_seconds: Training time so far.
    """

    key: str
    tail: dict[str, torch.Tensor]
    loop: dict[str, Any]
    changes: dict[str, Any]
    noise: torch.Tensor
    epochs: list[Entry]
    train_seconds: float


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A trial's checkpoint file, next to its weights.

    Attributes:
        path: File's path.
        key: Plan's key and the seed.
        kept: Whether this trial writes one.
    """

    path: Path
    key: str
    kept: bool

    @classmethod
    def of(cls, plan: TrialPlan, seed: int, weights: Path) -> "Checkpoint":
        """Return the checkpoint of a trial that will write `weights`."""
        return cls(weights.with_name(CHECKPOINT), f"{plan.key()}/{seed}", plan.traits.changes_shapes)

    def read(self) -> TrainingState | None:
        """Return the trial's state; None where it starts anew, or where the file is another trial's or torn."""
        if not self.kept:
            return None
        try:
            state = TrainingState(**torch.load(self.path, weights_only=True))
        except (OSError, RuntimeError, ValueError, TypeError, EOFError, pickle.UnpicklingError):
            return None
        return state if state.key == self.key else None

    def write(
        self, tail: nn.Module, loop: EpochLoop, changes: np.random.Generator, entries: Sequence[Entry], seconds: float
    ) -> None:
        """Write the trial's state, whole or not at all, readable by the user only.

        Args:
            tail: Its weights.
            loop: Its order, schedule and optimiser.
            changes: Draws the random changes.
            entries: Log so far.
            seconds: Training time so far.
        """
        loop_state = loop.state() if self.kept else None
        if loop_state is None:
            return
        state = TrainingState(
            key=self.key,
            tail=tail.state_dict(),
            loop=loop_state,
            changes=dict(changes.bit_generator.state),
            noise=torch.get_rng_state(),
            epochs=list(map(dict, entries)),
            train_seconds=seconds,
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with private_file(self.path, durable=False) as part:  # a torn one counts as none
            torch.save({name: getattr(state, name) for name in TrainingState.__dataclass_fields__}, part)

    def clear(self) -> None:
        """Remove the file: the trial is over."""
        self.path.unlink(missing_ok=True)


def restore(
    loop: EpochLoop, changes: np.random.Generator, state: TrainingState | None, seconds: float = 0.0
) -> TrainingLog:
    """Let a new loop continue from a trial's state; return the log so far.

    Args:
        loop: Whose tail has the state's weights.
        changes: Draws the random changes.
        state: Where the trial continues; None where it starts anew.
        seconds: Training time of this process so far.
    """
    if state is None or loop.state() is None:
        return TrainingLog(seconds=seconds)
    loop.restore(state.loop)
    changes.bit_generator.state = state.changes
    torch.set_rng_state(state.noise)
    return TrainingLog(tuple(state.epochs), seconds + state.train_seconds)
