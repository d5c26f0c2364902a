"""What ``bundle.json`` says of a bundle whose frozen blocks compute in int8."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.bundle.table import Table

#: Names of measured values, in addition to accuracies.
SECONDS, BYTES = "latency_seconds", "bytes"


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
        """Read the section as JSON holds it.

        Raises:
            BundleError: A value is of another type.
            KeyError: A required key is missing.
        """
        section = Table(content, "[int8] ")
        values = {name: section.table(name) for name in ("float32", "int8", "most_loss")}
        numbers = {name: {key: own.number(key) for key in own.content} for name, own in values.items()}
        return cls(section.integer("layers"), section.integer("float_layers", 0), **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the section as JSON holds it."""
        return asdict(self)
