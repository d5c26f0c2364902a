"""What the core asks of shared studies; no part of it is loaded for the help of `tuner worker`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.plugin import StudyOpener, StudyReader, hookimpl
from tuner_fleet.address import DATABASES, PROXY, exposed_password, read_address, warn_of_password
from tuner_fleet.artifacts.place import read_artifacts

if TYPE_CHECKING:
    from tuner_fleet.study.join import SharedStudy

#: Every argument and option may be given by a variable.
VARIABLE = "the whole address in the variable of the argument, such as TUNER_SHOW_FOLDER"


class Fleet(StudyOpener):
    """Opens studies by Optuna's storages; the libraries that these need are imported where one is opened."""

    def check(self, address: str, artifacts: str | Path | None = None) -> str:
        """Return an address without its password, once it and the place of the weights are checked."""
        shown = read_address(address).shown
        if artifacts is not None:
            read_artifacts(artifacts)
        return shown

    @contextmanager
    def open(
        self,
        address: str,
        artifacts: str | Path | None,
        say: Callable[[str], object],
        interrupt: Any,
        end: float | None,
        memory_bytes: int | None,
    ) -> "Iterator[SharedStudy]":
        """Open a study as a worker; give up what is begun, and the connections, with the block."""
        from tuner_fleet.artifacts.weights import SharedWeights
        from tuner_fleet.storage.opening import opened
        from tuner_fleet.study.join import SharedStudy

        read = read_address(address)
        warn_of_password(read, say)
        weights = None if artifacts is None else SharedWeights(read_artifacts(artifacts), say)
        with opened(read) as storage:
            shared = SharedStudy(read, storage, say, interrupt, end, weights, memory_bytes)
            try:
                yield shared
            finally:
                shared.leave()

    @contextmanager
    def read(self, address: str) -> Iterator[StudyReader]:
        """Open a study to look at it."""
        import logging  # not needed for --help

        from tuner.errors import RunError
        from tuner_fleet.storage.failures import is_outage, reason_of, refusal
        from tuner_fleet.storage.opening import opened
        from tuner_fleet.study.reader import Reader

        read = read_address(address)
        if (exposed := exposed_password(read, VARIABLE)) is not None:
            logging.getLogger("tuner.fleet").warning(exposed)
        try:
            with opened(read, exists=True) as storage:
                yield Reader(read, storage)
        except Exception as error:
            if not is_outage(error) and refusal(error) is None:
                raise
            reason = f"{read.shown} cannot be read ({reason_of(error)})"
            raise RunError(f"the study {reason}: see that it runs and lets this device in") from None


@hookimpl
def tuner_studies() -> Mapping[str, StudyOpener]:
    """Offer studies in the databases that Optuna knows, and behind its proxy."""
    return dict.fromkeys((*DATABASES, PROXY), Fleet())
