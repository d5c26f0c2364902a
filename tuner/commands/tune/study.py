"""The study of a run: in its folder, or one that a plugin opens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tuner.errors import UsageError
from tuner.plugin.host import Host
from tuner.results.records.config import RunRequest
from tuner.search.processes.guard import Interrupt
from tuner.search.trials.access import StudyAccess


def check_study(host: Host, asked: RunRequest) -> str:
    """Return the address of the study that a run is a worker of, without a password; empty for a run of its own.

    Raises:
        UsageError: No plugin opens it, the artifacts cannot be there, or the run is to be repeatable.
    """
    study, artifacts = asked.study, asked.artifacts
    if study is None:
        if artifacts is not None:
            raise UsageError(
                "--artifacts is where the workers of a study put weights: give --study too, or leave it out"
            )
        return ""
    if asked.deterministic:
        raise UsageError("--deterministic runs have one worker, and --study several: leave one of them out")
    alone = "a study in a run folder needs no address, give --out"
    return host.study(study, "--study", alone).check(study, artifacts)


def open_study(
    host: Host,
    asked: RunRequest,
    say: Callable[[str], object],
    interrupt: Interrupt,
    end: float | None,
    memory_bytes: int | None,
) -> AbstractContextManager[StudyAccess]:
    """Open the study of a run; what was begun is given up with the block.

    Args:
        host: What is installed.
        asked: What was asked of the run.
        say: Receives messages.
        interrupt: The user's request to stop.
        end: Clock (`time.monotonic`) at which the command must be over; None for never.
        memory_bytes: Limit on the memory of its trials; None for none.

    Raises:
        TunerError: The study or the artifacts cannot be opened.
    """
    if asked.study is None:
        return nullcontext(StudyAccess())
    return host.study(asked.study).open(asked.study, asked.artifacts, say, interrupt, end, memory_bytes)
