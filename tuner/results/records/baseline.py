"""What a search is compared with: the model as it came, and what anybody would try first."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.arrays import Flags
from tuner.results.records.counts import ClassCounts
from tuner.targets.base import ACCURACY, LEFT_OUT

#: Name of the model as it came; and of a linear layer alone, on the features in front of the last layer.
UNTOUCHED, LINEAR_PROBE = "untouched", "linear probe"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A model that no search is needed for, scored on the samples that trials are scored on.

    Attributes:
        name: Name for people, such as ``"linear probe"``.
        values: Its scores by name; none of a domain of whose classes the model has no output.
        share: Share of the samples that it learned from and was scored on.
        note: What it is, or why there is nothing of it, for people.
        seconds: What fitting it took; 0 where nothing was fitted.
        classes: Predictions by domain, counted by class.
        right: Which of the local samples were right; see `tuner.results.records.trial.Outcome`.
        folds: Folds of the local training samples that it was scored on too.
    """

    name: str
    values: dict[str, float] = field(default_factory=dict)
    share: float = 1.0
    note: str = ""
    seconds: float = 0.0
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    right: tuple[str, ...] = ()
    folds: int = 0

    def __post_init__(self) -> None:
        require_shares(self.values)


def require_shares(values: Mapping[str, float]) -> None:
    """Raise a ValueError where an accuracy is none; NaN is reported by the run."""
    for name in ("local_accuracy", "global_accuracy", LEFT_OUT + ACCURACY):
        if values.get(name, 0.0) < 0 or values.get(name, 0.0) > 1:
            raise ValueError(f"{name} must be between 0 and 1, got {values[name]}")


def packed(right: Flags) -> str:
    """Return which samples were right, bool [n], as a text: eight a byte, in base64."""
    return base64.b64encode(np.packbits(right).tobytes()).decode()


def is_right(text: str, place: int) -> bool:
    """Return whether the sample at a place was right, of what `packed` returned; a place outside is not."""
    flags = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
    return 0 <= place < len(flags) and bool(flags[place])


def discordant(one: Sequence[str], other: Sequence[str]) -> tuple[int, int]:
    """Return how many samples one alone has right, and how many the other alone, of what `packed` returned for each.

    Raises:
        ValueError: They are not of the same samples.
    """
    first, second = (np.frombuffer(b"".join(map(base64.b64decode, texts)), np.uint8) for texts in (one, other))
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} bytes are not of the same samples")
    return int(np.bitwise_count(first & ~second).sum()), int(np.bitwise_count(second & ~first).sum())
