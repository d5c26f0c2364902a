"""A service that answers samples of three classes, and a trainer that copies."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.runtime import Orchestrator, Policy
from tuner.runtime.service.conditions import Readings
from tuner.runtime.service.monitor import Watch

Make = Callable[..., Any]
ALWAYS = Readings(load=0.0, charging=True, celsius=30.0, minute=0)
POLICY = Policy(watch=Watch(exploration=0.0, enough=60, least=60))


@dataclass
class Copying:
    """A trainer that copies a bundle made beforehand, and remembers what it was given."""

    made: Path
    received: tuple[int, Sequence[str] | None] = (0, None)

    def train(self, samples: Sequence[Any], labels: Sequence[str] | None) -> Path:
        self.received = (len(samples), labels)
        out = self.made.with_name(f"{self.made.name}-copy")
        shutil.copytree(self.made, out)
        return out


def lived(service: Orchestrator, sample: Make, count: int, labels: str | None = None, first: int = 0) -> None:
    """Answer samples of a, b, c in turn; `labels` names the label of each of the three."""
    for number in range(first, first + count):
        service.infer(sample(number % 3, number), labels[number % 3] if labels else None)
