"""Limits of a command other than a run."""

from dataclasses import dataclass
from typing import Self

from tuner.awake import CLOCK
from tuner.units import parse_seconds, parse_size


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may take.

    Attributes:
        end: Clock (`tuner.awake.CLOCK`) at which it must be over; None for never.
        memory_bytes: Memory that the work may add to its process; None for no limit.
    """

    end: float | None = None
    memory_bytes: int | None = None

    @classmethod
    def read(cls, seconds: str | None, memory: str | None) -> Self:
        """Return the limits that a user gives as text: ``--time``, which counts from now, and ``--memory``."""
        end = None if seconds is None else CLOCK.now() + parse_seconds(seconds, "--time")
        return cls(end, None if memory is None else parse_size(memory, "--memory"))


#: Where the user gives no limits.
NO_LIMITS = CommandLimits()
