"""What was measured of a bundle: in the trial, of the exported files, in int8, and by training on a device."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.bundle.table import Table

#: Names of measured values, in addition to accuracies.
SECONDS, BYTES = "latency_seconds", "bytes"


@dataclass(frozen=True, slots=True)
class DeviceScores:
    """What training on a device came to.

    Attributes:
        before: Accuracy on the bundle's check samples before training; None where it brings none.
        after: The same after training.
        losses: Mean loss of each epoch.
        samples: Number of new samples that were trained on.
    """

    before: float | None
    after: float | None
    losses: tuple[float, ...]
    samples: int

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "DeviceScores":
        """Read ``before`` and ``after`` as JSON holds them; errors as for `Table`."""
        section = Table(content, "[scores] ")
        after, before = section.table("after"), section.table("before")
        return after.read(cls, before=_accuracy(before), after=_accuracy(after))

    def to_dict(self) -> dict[str, Any]:
        """Return ``before`` and ``after`` as JSON holds them."""
        after = {"global_accuracy": self.after, "losses": list(self.losses), "samples": self.samples}
        return {"before": {"global_accuracy": self.before}, "after": after}


@dataclass(frozen=True, slots=True)
class Scores:
    """Measured values, by name.

    Attributes:
        trial: Values of the trial that the bundle was exported from; none after training on a device.
        untouched: The given model's accuracies.
        from_pixels: Values of the exported files, from pixels, or features with the same logits; likewise.
        device: Values before and after training on a device; None where there was none.
        refit_samples: Number of local validation samples that the exported weights have learned too; 0 for none. The
            trial's values, and the local ones of `from_pixels`, which may be of stored features, are from before that.
        test_left_out: Whether there were test samples, on which nothing was measured.
        doubts: Warnings that the scores are too good, such as of sessions that training shares with the test.
    """

    trial: Mapping[str, float] = field(default_factory=dict)
    untouched: Mapping[str, float] = field(default_factory=dict)
    from_pixels: Mapping[str, float] = field(default_factory=dict)
    device: DeviceScores | None = None
    refit_samples: int = 0
    test_left_out: bool = False
    doubts: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Scores":
        """Read the scores as JSON holds them; errors as for `Table`."""
        device = DeviceScores.from_dict(content) if "after" in content else None
        section = Table(content, "[scores] ")
        names = ("trial", "untouched", "from_pixels")
        trial, untouched, pixels = (section.table(name).values_of(int | float, "a number") for name in names)
        notes = section.integer("refit_samples", 0), section.flag("test_left_out", default=False)
        return cls(trial, untouched, pixels, device, *notes, section.texts("doubts", ()))

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON holds them."""
        measured = {"trial": dict(self.trial), "untouched": dict(self.untouched), "from_pixels": dict(self.from_pixels)}
        content = {name: values for name, values in measured.items() if values or name == "untouched"}
        notes = {"refit_samples": self.refit_samples, "test_left_out": self.test_left_out, "doubts": self.doubts}
        return {
            **content,
            **{name: value for name, value in notes.items() if value},
            **(self.device.to_dict() if self.device else {}),
        }


@dataclass(frozen=True, slots=True)
class Int8Info:
    """A bundle's frozen blocks in int8, compared with the same blocks in float32.

    Attributes:
        layers: Number of the frozen blocks' layers that compute in int8.
        float_layers: Number of those that stayed in float32, as they lose most.
        float32: Values of the model in float32: accuracies, the seconds of a prediction (``latency_seconds``: one
            sample, one thread, the median), and the size of the bundle's files but ``bundle.json`` (``bytes``).
        int8: The same of the bundle.
        most_loss: By accuracy: with 95 % confidence, no more of it is lost, as a share; of one label a sample.
    """

    layers: int
    float_layers: int = 0
    float32: Mapping[str, float] = field(default_factory=dict)
    int8: Mapping[str, float] = field(default_factory=dict)
    most_loss: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Int8Info":
        """Read the section as JSON holds it; errors as for `Table`."""
        section = Table(content, "[int8] ")
        values = {name: section.table(name) for name in ("float32", "int8", "most_loss")}
        numbers = {name: {key: own.number(key) for key in own.content} for name, own in values.items()}
        return cls(section.integer("layers"), section.integer("float_layers", 0), **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it."""
        return asdict(self)


def _accuracy(section: Table) -> float | None:
    if "global_accuracy" not in section.content:
        raise KeyError("global_accuracy")
    value: float | None = section.number("global_accuracy", None, least=0, most=1)
    return value
