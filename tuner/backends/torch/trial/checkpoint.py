"""Checkpoints: where a trial continues after an interruption, and where another trial continues its training."""

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.backends.base import CHECKPOINT, Trial
from tuner.files import private_file
from tuner.training.epoch import EpochLoop
from tuner.training.epochs import Entry, TrainingLog
from tuner.training.schedule import DECAY_SHARE, epochs_done


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """A trial between two epochs.

    Attributes:
        key: Hash of the plan, without its epochs where another trial may continue, and the seed.
        tail: State dictionary, of any shapes.
        loop: See `tuner.training.epoch.EpochLoop.state`.
        changes: State of the generator that augments.
        noise: State of PyTorch's own generator, uint8.
        epochs: Log so far.
        train_seconds: Training time so far.
        samples: Number of training samples of an epoch.
    """

    key: str
    tail: dict[str, torch.Tensor]
    loop: dict[str, Any]
    changes: dict[str, Any]
    noise: torch.Tensor
    epochs: list[Entry]
    train_seconds: float
    samples: int


class Checkpoint:
    """A trial's checkpoint file, next to its weights.

    Of a tail that changes while it trains it is written after every epoch, and removed at the end. Other trials write
    one when training ends, so that another trial can continue: a file an epoch is not free.
    """

    def __init__(self, trial: Trial) -> None:
        self._each_epoch = trial.plan.traits.changes_shapes
        self._at_end = trial.keeps and not self._each_epoch
        self.path = trial.weights.with_name(CHECKPOINT)
        self._earlier = None if self._each_epoch else trial.earlier
        self.key = f"{trial.plan.key() if self._each_epoch else trial.plan.line()}/{trial.seed}"

    def read(self) -> TrainingState | None:
        """Return the trial's state; None where it starts anew, or where the files are other trials' or torn."""
        own = (self.path,) if self._each_epoch or self._at_end else ()
        return next((state for path in (*own, self._earlier) if path and (state := self._read(path))), None)

    def _read(self, path: Path) -> TrainingState | None:
        try:
            state = TrainingState(**torch.load(path, weights_only=True))
        except (OSError, RuntimeError, ValueError, TypeError, EOFError, pickle.UnpicklingError):
            return None
        return state if state.key == self.key else None

    def between(
        self, tail: nn.Module, loop: EpochLoop, changes: np.random.Generator, entries: Sequence[Entry], seconds: float
    ) -> None:
        """Write the state between two epochs, where it is to be kept: of a rate that decays, before it does."""
        stable = math.floor((1 - DECAY_SHARE) * loop.recipe.epochs)
        if self._each_epoch or (self._at_end and loop.recipe.schedule == "wsd" and len(entries) == stable):
            self._write(tail, loop, changes, entries, seconds)

    def end(self, tail: nn.Module, loop: EpochLoop, changes: np.random.Generator, log: TrainingLog) -> None:
        """Write the state in which training ended, where another trial may continue; not within an epoch."""
        if self._at_end and loop.recipe.schedule != "wsd" and loop.between_epochs:
            self._write(tail, loop, changes, log.entries, log.seconds)

    def _write(
        self, tail: nn.Module, loop: EpochLoop, changes: np.random.Generator, entries: Sequence[Entry], seconds: float
    ) -> None:
        """Write the trial's state, whole or not at all, readable by the user only."""
        loop_state = loop.state()
        if loop_state is None:
            return
        generators = {"changes": dict(changes.bit_generator.state), "noise": torch.get_rng_state()}
        epochs = {"epochs": list(map(dict, entries)), "train_seconds": seconds, "samples": loop.samples}
        state = {"key": self.key, "tail": tail.state_dict(), "loop": loop_state, **generators, **epochs}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with private_file(self.path, durable=False) as part:  # a torn one counts as none
            torch.save(state, part)

    def clear(self) -> None:
        """Remove the file of a trial that is over, unless another one may continue it."""
        if not self._at_end:
            self.path.unlink(missing_ok=True)


def restore(
    loop: EpochLoop, changes: np.random.Generator, state: TrainingState | None, seconds: float = 0.0
) -> TrainingLog:
    """Let a new loop, whose tail has a state's weights, continue from the state; return the log so far.

    Epochs on fewer samples count as the part of an epoch that they are; at least one epoch is left on the new samples.
    `seconds` is the training time of this process so far.
    """
    if state is None or loop.state() is None:
        return TrainingLog(seconds=seconds)
    loop.restore(state.loop)
    changes.bit_generator.state = state.changes
    torch.set_rng_state(state.noise)
    done = len(state.epochs)
    if loop.samples != state.samples:
        done = epochs_done(done, state.samples, loop.samples, loop.recipe.epochs)
        loop.resume_at(done)
    last = state.epochs[len(state.epochs) - done :]
    entries = [{**entry, "epoch": 1.0 + number} for number, entry in enumerate(last)]
    return TrainingLog(tuple(entries), seconds + state.train_seconds)
