"""Limits of a command other than a run."""

from dataclasses import dataclass, replace
from typing import Self

from tuner.machine.awake import CLOCK
from tuner.machine.control_group import available_memory
from tuner.units import parse_seconds, parse_size

#: Share of the free memory that a command may take where no limit is given.
FREE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may take.

    Attributes:
        end: Clock (`tuner.machine.awake.CLOCK`) at which it must be over; None for never.
        memory_bytes: Memory that the work may add to its process; None for no limit.
    """

    end: float | None = None
    memory_bytes: int | None = None

    @classmethod
    def read(cls, seconds: str | None, memory: str | None) -> Self:
        """Return the limits that a user gives as text: ``--time``, which counts from now, and ``--memory``."""
        end = None if seconds is None else CLOCK.now() + parse_seconds(seconds, "--time")
        return cls(end, None if memory is None else parse_size(memory, "--memory"))

    def within_free(self) -> Self:
        """Return these limits, with a share of the free memory where they have none: beyond it nothing is said."""
        if self.memory_bytes is not None:
            return self
        return replace(self, memory_bytes=int(FREE_SHARE * available_memory()))


#: Where the user gives no limits.
NO_LIMITS = CommandLimits()
