"""The exits of a bundle: where samples leave its chain of segments, and what that was chosen by."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from tuner.errors import BundleError


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
        segments: Files of the segments, in order; segment i ends with exit i, the last with the model's own output.
        shares: Share of the whole model's FLOPs that a sample costs which leaves at each exit.
        thresholds: Threshold of every exit but the last: a sample leaves at the first exit whose confidence is above
            it.
        temperature: Divisor of the logits.
        tolerance: Drop of accuracy that the thresholds were chosen for: 0.01 is a point.
        reference_accuracy: Accuracy that the drop is measured from.
        calibration_samples: Number of samples that the thresholds were chosen on.
        labelled: Whether these samples have labels; without them accuracy is agreement with the last exit.
        seconds: Latency of a sample that leaves at each exit, on the device of the export.
        front: Best accuracies by latency, of one threshold for all exits.
    """

    segments: tuple[str, ...]
    shares: tuple[float, ...]
    thresholds: tuple[float, ...]
    temperature: float
    tolerance: float
    reference_accuracy: float | None = None
    calibration_samples: int | None = None
    labelled: bool | None = None
    seconds: tuple[float, ...] = ()
    front: tuple[ExitPoint, ...] = ()

    def __post_init__(self) -> None:
        if len(self.thresholds) != len(self.segments) - 1 or len(self.shares) != len(self.segments):
            raise BundleError(
                "exits must have a share for each segment and a threshold for each but the last, got "
                f"{len(self.segments)} segments, {len(self.shares)} shares, {len(self.thresholds)} thresholds: "
                "export again"
            )
        if self.temperature <= 0:
            raise BundleError(f"the exits' temperature must be above 0, got {self.temperature:g}: export again")

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ExitPolicy":
        """Read the section as JSON holds it.

        Raises:
            BundleError: Its parts do not fit together.
            KeyError: A required key is missing.
        """
        return cls(
            segments=tuple(content["segments"]),
            shares=_floats(content["shares"]),
            thresholds=_floats(content["thresholds"]),
            temperature=content["temperature"],
            tolerance=content["tolerance"],
            reference_accuracy=content.get("reference_accuracy"),
            calibration_samples=content.get("calibration_samples"),
            labelled=content.get("labelled"),
            seconds=_floats(content.get("seconds", ())),
            front=tuple(ExitPoint(**point) for point in content.get("front", ())),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it, without values that a bundle made by hand leaves out."""
        optional = {own.name for own in fields(self) if own.default is not MISSING}
        content = asdict(self, dict_factory=with_lists)
        return {name: value for name, value in content.items() if name not in optional or value not in (None, [])}


def with_lists(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary as JSON reads it back, lists for tuples: a `dict_factory` of `dataclasses.asdict`."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    """Return numbers of JSON, where whole ones may be integers, as floats."""
    return tuple(map(float, values))
