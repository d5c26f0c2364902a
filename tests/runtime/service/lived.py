"""A service that answers samples of three classes, and trainers that need no training."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tuner.runtime import Bundle, Orchestrator, Personaliser, Policy
from tuner.runtime.service.conditions import Readings
from tuner.runtime.service.monitor import Watch
from tuner.runtime.train.answer import Answer

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
    """

    made: Path
    received: tuple[int, Sequence[str] | None] = (0, None)
    folds: list[Sequence[int]] = field(default_factory=list)
    samples: Sequence[Any] = ()

    def add(self, samples: Sequence[Any], labels: Sequence[str] | None) -> None:
        self.received, self.samples = (len(samples), labels), samples

    def answers_without(self, rows: Sequence[int]) -> list[Answer]:
        self.folds.append(rows)
        model = Personaliser(Bundle.read(self.made), threads=1)
        predictions = model.predict_batch(np.stack([self.samples[row] for row in rows]))
        return [Answer(prediction.label, prediction.exit) for prediction in predictions]

    def train(self) -> Path:
        out = self.made.with_name(f"{self.made.name}-copy")
        shutil.copytree(self.made, out)
        return out


def lived(service: Orchestrator, sample: Make, count: int, labels: str | None = None, first: int = 0) -> None:
    """Answer samples of a, b, c in turn; `labels` names the label of each of the three."""
    for number in range(first, first + count):
        service.infer(sample(number % 3, number), labels[number % 3] if labels else None)
