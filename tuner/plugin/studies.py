"""Studies that several processes share: what a plugin opens, by the scheme of an address."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol


class StudyReader(Protocol):
    """Reads a study that others may go on with."""

    def finished(self) -> int:
        """Return how many trials have ended."""
        ...

    def write(self, folder: Path) -> None:
        """Write the study into a folder as the run that it would be on one device."""
        ...

    def fetch(self, trial: int, artifacts: str | Path, folder: Path) -> None:
        """Copy the weights of a trial into the folder of the run, from where the workers put them."""
        ...


class StudyOpener(ABC):
    """Opens studies whose addresses have one scheme."""

    @abstractmethod
    def check(self, address: str, artifacts: str | Path | None = None) -> str:
        """Check what the user gave, without a connection: an address, and where the workers of its study put weights.

        Returns:
            The address as it may be shown: without a password.

        Raises:
            UsageError: One of them cannot be used.
        """

    @abstractmethod
    def open(
        self,
        address: str,
        artifacts: str | Path | None,
        say: Callable[[str], object],
        interrupt: Any,
        end: float | None,
        memory_bytes: int | None,
    ) -> AbstractContextManager[Any]:
        """Open a study as one of its workers; what was begun is left to the others with the block.

        Args:
            address: Of the study.
            artifacts: Folder or address where weights of the front are put; None where each worker keeps its own.
            say: Receives messages for the user.
            interrupt: The user's request to stop, a `tuner.search.processes.guard.Interrupt`.
            end: Clock (`tuner.machine.awake.CLOCK`) at which the command must be over; None for never.
            memory_bytes: Limit on the memory of this worker's trials; None for none.

        Returns:
            A context that gives a `tuner.search.trials.access.StudyAccess`.
        """

    @abstractmethod
    def read(self, address: str) -> AbstractContextManager[StudyReader]:
        """Open a study to look at it, for the length of a block."""
