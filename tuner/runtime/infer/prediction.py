"""What a bundle predicts for one sample, as data."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.targets.base import Named

#: What is answered where a sample is none of the user's classes.
UNKNOWN = "unknown"
Probabilities = npt.NDArray[np.floating]


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
        labels: The most probable label; where a sample may have several, all over their thresholds; or
            each output with its value.
    """

    begin: int
    labels: Named


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for one sample.

    Attributes:
        label: Most probable label; or the values as text, separated by ``|``.
        probability: Probability of that label: softmax, or sigmoid where it may have several; NaN of values.
        exit: Index of the exit that the sample left at; the last is the model's own output. For a recording, the
            deepest exit that a window left at.
        seconds: Time that the model took, shared equally in a batch.
        windows: Predictions for the windows of a recording; the mean of their probabilities decides.
        labels: Where a sample may have several labels, all over their thresholds; None where it has one.
        timeline: Predictions for the seconds of a sound.
        note: What was done to a sound that a person should know: mixed down, padded; empty for nothing.
        values: Each output with its value, in the unit of the targets; None where there are labels.
        unknown: How unlike the user's samples it is; above 1, 95 % of these are nearer to their classes. None where
            that was not asked for.
        names, outputs: Names of the outputs, and what the model gives for each; see `probabilities`.
    """

    label: str
    probability: float
    exit: int
    seconds: float
    windows: tuple[Window, ...] = ()
    labels: Named | None = None
    timeline: tuple[Second, ...] = ()
    note: str = ""
    values: Named | None = None
    unknown: float | None = None
    names: tuple[str, ...] = field(default=(), repr=False, compare=False)
    outputs: Probabilities | None = field(default=None, repr=False, compare=False)

    @property
    def probabilities(self) -> dict[str, float]:
        """Probability of each label, the most probable first; of targets, each output's value."""
        outputs = () if self.outputs is None else self.outputs.tolist()
        pairs = zip(self.names, outputs, strict=False)
        return dict(pairs if self.values is not None else sorted(pairs, key=lambda pair: -pair[1]))

    @property
    def answer(self) -> str:
        """The label, or `UNKNOWN` where the sample is found to be none of the user's classes."""
        return self.label if self.unknown is None or self.unknown <= 1 else UNKNOWN

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON's types, without what it does not have."""
        content = asdict(replace(self, names=(), outputs=None))
        content["timeline"] = [{"begin": second.begin, "labels": dict(second.labels)} for second in self.timeline]
        left_out = {"names", "outputs"}
        left_out |= {name for name in ("windows", "timeline", "note") if not content[name]}
        left_out |= {name for name in ("labels", "values", "unknown") if content[name] is None}
        if self.unknown is not None:
            content |= {"label": self.answer, "nearest": self.label}
        if self.labels is not None:
            content["labels"] = dict(self.labels)
        if self.values is not None:
            content["values"] = dict(self.values)
            content["windows"] = [{"begin": window.begin, "value": window.label} for window in self.windows]
            left_out |= {"label", "probability"}
        return {name: value for name, value in content.items() if name not in left_out}


def timeline(
    probabilities: Probabilities, centres: Sequence[float], named: Callable[[Probabilities], Named]
) -> tuple[Second, ...]:
    """Return what is heard in each second: the mean over the patches whose centre is in it.

    A second without a centre takes the nearest patch.

    Args:
        probabilities: Of each patch, float [n, labels].
        centres: Middle of each patch, in seconds, ascending.
        named: Returns what probabilities come to.
    """
    at = np.asarray(centres)
    seconds = []
    for begin in range(int(at[-1]) + 1):
        within = (at >= begin) & (at < begin + 1)
        if not within.any():
            within[np.abs(at - begin - 1 / 2).argmin()] = True
        seconds.append(Second(begin, named(probabilities[within].mean(axis=0, dtype=np.float64))))
    return tuple(seconds)
