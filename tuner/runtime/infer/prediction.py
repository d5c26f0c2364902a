"""What a bundle predicts for one sample, as data."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.runtime.infer.targets import text_of

#: Threshold of a label in bundles that have none.
THRESHOLD = 0.5
Probabilities = npt.NDArray[np.floating]
#: Labels with their probabilities, the most probable first.
ScoredLabels = tuple[tuple[str, float], ...]
#: Outputs of a regression with their values.
Values = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Window:
    """Prediction for one window of a recording.

    Attributes:
        begin: Position of the window's first sample; of a sound, in log-mel frames of 10 ms.
        label: Most probable label.
        probability: Probability of that label.
    """

    begin: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Second:
    """Prediction for one second of a sound.

    Attributes:
        begin: Seconds from the begin of the sound.
        labels: The most probable label; where a sample may have several, all over their thresholds; of a regression
            each output with its value.
    """

    begin: int
    labels: ScoredLabels


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for one sample.

    Attributes:
        label: Most probable label; of a regression the values as text, separated by ``|``.
        probability: Probability of that label: softmax, or sigmoid where it may have several; NaN of a regression.
        exit: Index of the exit that the sample left at; the last is the model's own output. For a recording, the
            deepest exit that a window left at.
        seconds: Time that the model took, shared equally in a batch.
        windows: Predictions for the windows of a recording; the mean of their probabilities decides.
        labels: Where a sample may have several labels, all over their thresholds; None where it has one.
        timeline: Predictions for the seconds of a sound.
        note: What was done to a sound that a person should know: mixed down, padded; empty for nothing.
        values: Of a regression, each output with its value, in the unit of the targets; None where there are labels.
    """

    label: str
    probability: float
    exit: int
    seconds: float
    windows: tuple[Window, ...] = ()
    labels: ScoredLabels | None = None
    timeline: tuple[Second, ...] = ()
    note: str = ""
    values: Values | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types, without what it does not have."""
        content = asdict(self)
        if self.labels is not None:
            content["labels"] = dict(self.labels)
        content["timeline"] = [{"begin": second.begin, "labels": dict(second.labels)} for second in self.timeline]
        for name in ("windows", "timeline", "note"):
            if not content[name]:
                del content[name]
        if self.labels is None:
            del content["labels"]
        if self.values is None:
            del content["values"]
            return content
        content["values"] = dict(self.values)
        content |= (
            {"windows": [{"begin": one.begin, "value": one.label} for one in self.windows]} if self.windows else {}
        )
        return {name: value for name, value in content.items() if name not in {"label", "probability"}}


@dataclass(frozen=True, slots=True)
class Labelling:
    """How probabilities become labels, or outputs of a regression values.

    Attributes:
        names: Label of each output.
        thresholds: Of each label, where a sample may have several; None where it has one.
        numbers: Whether the outputs are values.
    """

    names: tuple[str, ...]
    thresholds: tuple[float, ...] | None
    numbers: bool = False

    @classmethod
    def of(cls, names: tuple[str, ...], thresholds: Sequence[float], loss: str) -> "Labelling":
        """Return how a bundle's outputs become labels; thresholds are `THRESHOLD` where it has none."""
        own = tuple(thresholds) or (THRESHOLD,) * len(names)
        return cls(names, own if loss == "multi-label" else None, loss == "regression")

    def values(self, outputs: Probabilities) -> Values | None:
        """Return each output of a regression with its value; None where there are labels."""
        return tuple(zip(self.names, map(float, outputs), strict=True)) if self.numbers else None

    def best(self, probabilities: Probabilities) -> tuple[str, float]:
        """Return the most probable label and its probability; of a regression the values as text, and NaN."""
        if self.numbers:
            return text_of(probabilities), math.nan
        best = int(probabilities.argmax())
        return self.names[best], float(probabilities[best])

    def over(self, probabilities: Probabilities) -> ScoredLabels | None:
        """Return the labels over their thresholds, the most probable first; None where a sample has one label."""
        if self.thresholds is None:
            return None
        rows = np.argsort(-probabilities, kind="stable")
        return tuple(
            (self.names[row], float(probabilities[row])) for row in rows if probabilities[row] >= self.thresholds[row]
        )

    def timeline(self, probabilities: Probabilities, centres: Sequence[float]) -> tuple[Second, ...]:
        """Return what is heard in each second: the mean over the patches whose centre is in it.

        A second without a centre takes the nearest patch.

        Args:
            probabilities: Of each patch, float [n, labels].
            centres: Middle of each patch, in seconds, ascending.
        """
        at = np.asarray(centres)
        seconds = []
        for begin in range(int(at[-1]) + 1):
            within = (at >= begin) & (at < begin + 1)
            if not within.any():
                within[np.abs(at - begin - 1 / 2).argmin()] = True
            mean = probabilities[within].mean(axis=0, dtype=np.float64)
            over = self.over(mean)
            values = self.values(mean)
            own = values if values is not None else (self.best(mean),)
            seconds.append(Second(begin, own if over is None else over))
        return tuple(seconds)
