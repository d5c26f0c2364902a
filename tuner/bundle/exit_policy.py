"""The exits of a bundle: where samples leave its chain of segments, and what that was chosen by."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any

from tuner.bundle.table import MOST, Table, Within
from tuner.errors import BundleError

_MOST_SHARE = 1.01  # rounding may pass 1


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """One global threshold of all exits, on the calibration samples.

    Attributes:
        threshold: Confidence above which a sample leaves.
        accuracy: Accuracy of the answers.
        mean_latency_seconds: Mean latency of a sample.
    """

    threshold: float
    accuracy: float
    mean_latency_seconds: float


@dataclass(frozen=True, slots=True)
class ExitPolicy:
    """When a sample leaves a chain of segments, and how that was chosen; PersEPhonEE (HotMobile 2021), section 3.

    Attributes:
        segments: Files of the segments, in order; segment i ends with exit i, the last with the model's own
            output, or with an exit too where what no sample reaches was dropped.
        shares: Share of the whole model's FLOPs that a sample costs which leaves at each exit.
        thresholds: Threshold of every exit but the last: a sample leaves at the first exit whose confidence is above
            it.
        temperatures: Divisor of the logits of each exit.
        tolerance: Drop of accuracy that the thresholds were chosen for: 0.01 is a point.
        reference_accuracy: Accuracy that the drop is measured from.
        calibration_samples: Number of samples that the thresholds were chosen on.
        labelled: Whether these samples have labels; without them accuracy is agreement with the last exit.
        seconds: Latency of a sample that leaves at each exit, on the device of the export.
        peak_bytes: Memory of one sample that leaves at each exit, in float32: weights up to there, and the most that
            tensors take at once; empty where samples take different ways.
        front: Best accuracies by latency, of one threshold for all exits.
    """

    segments: tuple[str, ...]
    shares: Annotated[tuple[float, ...], Within(0, _MOST_SHARE)]
    thresholds: Annotated[tuple[float, ...], Within(0, 1)]
    temperatures: tuple[float, ...]
    tolerance: float
    reference_accuracy: float | None = None
    calibration_samples: int | None = None
    labelled: bool | None = None
    seconds: Annotated[tuple[float, ...], Within(0, math.inf)] = ()
    peak_bytes: Annotated[tuple[int, ...], Within(0, MOST)] = ()
    front: tuple[ExitPoint, ...] = ()

    def __post_init__(self) -> None:
        exits = len(self.segments)
        if (
            len(self.thresholds) != exits - 1
            or len(self.shares) != exits
            or {len(self.seconds), len(self.peak_bytes)} - {0, exits}
        ):
            raise BundleError(
                "exits must have a share for each segment and a threshold for each but the last, got "
                f"{exits} segments, {len(self.shares)} shares, {len(self.thresholds)} thresholds: export again"
            )
        if len(set(self.segments)) < len(self.segments):
            raise BundleError(f"[exits] segments must name each file once, got {list(self.segments)}: export again")
        if len(self.temperatures) != exits or min(self.temperatures) <= 0:
            got = ", ".join(f"{divisor:g}" for divisor in self.temperatures)
            raise BundleError(
                f"the exits' temperature must be above 0, one for each of {exits} exits, got {got}: export again"
            )

    @property
    def ends_with_exit(self) -> bool:
        """Whether the last segment is an exit: what no sample reaches was dropped."""
        return self.shares[-1] < 1

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ExitPolicy":
        """Read the section as JSON holds it; errors as for `Table`, and where parts do not fit together."""
        section = Table(content, "[exits] ")
        return section.read(cls, front=tuple(point.read(ExitPoint) for point in section.tables("front")))

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it, without values that a bundle made by hand leaves out."""
        optional = {own.name for own in fields(self) if own.default is not MISSING}
        content = asdict(self, dict_factory=with_lists)
        return {name: value for name, value in content.items() if name not in optional or value not in (None, [])}


def with_lists(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary as JSON reads it back, lists for tuples: a `dict_factory` of `dataclasses.asdict`."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}
