"""A service that answers samples of three classes, and trainers that need no training."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Flags
from tuner.runtime import Bundle, Personaliser
from tuner.runtime.train.base import Answer
from tuner_watch.conditions import Readings
from tuner_watch.monitor import Watch
from tuner_watch.orchestrator import Orchestrator, Policy
from tuner_watch.round import RoundTraining

Make = Callable[..., Any]
ALWAYS = Readings(load=0.0, charging=True, celsius=30.0, minute=0)
POLICY = Policy(watch=Watch(exploration=0.0, enough=60, least=60))


@dataclass
class Copying:
    """A trainer that copies a bundle made beforehand, answers as it does, and remembers what it was given.

    Attributes:
        made: The bundle.
        received: Number of samples, and their labels.
        folds: Rows of each fold that it has answered.
        right: How the user's earlier samples are answered, by the model in use and by the new one, and
            whose labels did not come; None without any.
    """

    made: Path
    received: tuple[int, Sequence[Sequence[str]] | None] = (0, None)
    folds: list[Sequence[int]] = field(default_factory=list)
    right: tuple[Flags, Flags, Flags] | None = None

    @property
    def earlier(self) -> int:
        return 0 if self.right is None else len(self.right[0])

    def earlier_right(self) -> tuple[Flags, Flags, Flags] | None:
        return self.right

    def add(self, samples: Sequence[Any], labels: Sequence[Sequence[str]] | None) -> None:
        self.received = len(samples), labels

    def answers_without(self, rows: Sequence[int], samples: Sequence[Any]) -> list[Answer]:
        self.folds.append(rows)
        model = Personaliser(Bundle.read(self.made), threads=1)
        predictions = model.predict_batch(np.stack(samples))
        return [Answer(prediction.label, prediction.exit) for prediction in predictions]

    def train(self) -> None:
        pass

    def save(self, out: Path) -> None:
        shutil.copytree(self.made, out)


def round_training(trainer: Any, *settings: Any, **named: Any) -> RoundTraining:
    """Return rounds that take a trainer as it is, whatever the bundle."""
    return RoundTraining(lambda _: trainer, *settings, **named)


def lived(service: Orchestrator, sample: Make, count: int, labels: str | None = None, first: int = 0) -> None:
    """Answer samples of a, b, c in turn; `labels` names the label of each of the three."""
    for number in range(first, first + count):
        service.infer(sample(number % 3, number), labels[number % 3] if labels else None)
