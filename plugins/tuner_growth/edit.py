"""The rules of a growth, as a plan holds them."""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """The rules of a growth, as a plan holds them.

    Attributes:
        start: Fraction of a convolution's channels that the tail starts with; linears start with a fifth of it.
        controller: ``ric`` decides by value, ``linear`` and ``exponential`` grow by steps, ``fixed`` never grows.
        cap: Fraction of the full tail's parameters that is not exceeded.
        flops: Fraction of the full tail's FLOPs that is not exceeded.
        adapter: How newborn channels get their weights.
        horizon: Epochs that ``ric`` looks ahead.
        penalty: Initial weight of added cost in ``ric``, η.
    """

    start: float
    controller: str
    cap: float = 1.0
    flops: float = 1.0
    adapter: str = "random"
    horizon: int = 1
    penalty: float = 0.0

    @property
    def settings(self) -> tuple[tuple[str, Any], ...]:
        """Settings that differ from the defaults, sorted by name."""
        defaults = {setting.name: setting.default for setting in fields(self)}
        return tuple(sorted((name, value) for name, value in asdict(self).items() if value != defaults[name]))
