"""A command that is a worker of a shared study."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TunerError, UsageError
from tuner.plan.info import ModelInfo
from tuner.results.config import RunRequest
from tuner.results.folder import JOURNAL, Identity, RunInfo, open_records, write_run
from tuner.results.kinds import Kind
from tuner.results.objectives import Objective
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.setting import Setting
from tuner.search.shared.address import ENVIRONMENT, Address, read_address
from tuner.search.shared.artifacts import read_artifacts

if TYPE_CHECKING:
    from tuner.search.queue import Queue
    from tuner.search.shared.joining import SharedStudy


def shared_address(asked: RunRequest) -> Address | None:
    """Return the address of the study that a run is a worker of; None for a run of its own.

    Raises:
        UsageError: It is no address, the artifacts cannot be there, or the run is to be repeatable.
    """
    study, artifacts = asked.study, asked.artifacts
    if study is not None and asked.deterministic:
        raise UsageError("--deterministic runs have one worker, and --study several: leave one of them out")
    if study is None and artifacts is not None:
        raise UsageError("--artifacts is where the workers of a study put weights: give --study too, or leave it out")
    if artifacts is not None:
        read_artifacts(artifacts)  # a mistake there is reported before the task is opened
    alone = "a study in a run folder needs no address, give --out"
    return None if study is None else read_address(study, "--study", alone)


@contextmanager
def sharing(
    address: Address | None,
    listener: Listener,
    interrupt: Interrupt,
    end: float | None,
    artifacts: str | Path | None = None,
    memory_bytes: int | None = None,
) -> Iterator["SharedStudy | None"]:
    """Open a shared study; give up what is begun, and the connections, with the block.

    Args:
        address: Where it is; None for a run of its own, which has none to open.
        listener: Receives messages.
        interrupt: The user's request to stop.
        end: Clock (`time.monotonic`) at which the command must be over; None for never.
        artifacts: Folder or bucket where weights of the front are put for others; None where each worker keeps its own.
        memory_bytes: Limit on the memory of this worker's trials; None for none.

    Raises:
        TunerError: The database or the artifacts cannot be opened.
    """
    if address is None:
        yield None
        return
    from tuner.search.shared.joining import SharedStudy  # it needs Optuna

    warn_of_password(address, listener.say)
    place = None if artifacts is None else read_artifacts(artifacts)
    shared = SharedStudy(address, listener, interrupt, end, place, memory_bytes)
    try:
        yield shared
    finally:
        shared.leave()


def warn_of_password(address: Address, say: Callable[[str], object]) -> None:
    """Say so where an address with its password is in the list of processes."""
    if (exposed := exposed_password(address)) is not None:
        say(f"warning: {exposed}")


def exposed_password(address: Address, safe: str = ENVIRONMENT) -> str | None:
    """Return what to say where an address with its password is in the list of processes; one from a variable is not.

    Args:
        address: The address.
        safe: Where the whole address is safe.
    """
    place = address.url.partition("://")[2]
    if not address.has_password or not any(place in argument for argument in sys.argv):
        return None
    advice = address.way_out.replace(ENVIRONMENT, safe)
    return f"whoever may list processes may read the password in the study's address: {advice}"


def check_same(
    shared: "SharedStudy | None", identity: Identity, model: ModelInfo, objectives: Sequence[Objective]
) -> None:
    """Check that a shared study is about what this worker was asked for, before the device is measured for it.

    Raises:
        RunError: It is about something else; about what.
    """
    if shared is not None:
        shared.require_same(identity, model.fingerprint, [one.name for one in objectives])


def open_queue(shared: "SharedStudy | None", setting: Setting, info: RunInfo) -> "tuple[Queue, RunInfo]":
    """Return the trials of a run: those of its journal, or of a shared study; and what its folder then says of itself.

    Args:
        shared: The study that it is a worker of; None for a run of its own.
        setting: The study's.
        info: What is known of the run.
    """
    if shared is not None:
        queue, info = shared.join(setting, info)
        write_run(setting.folder, info)
        return queue, info
    from tuner.search.journal import open_study
    from tuner.search.queue import Queue

    records = open_records(setting.folder, info.template)
    directions = [objective.optuna_direction for objective in setting.objectives]
    journal = open_study(setting.folder / JOURNAL, directions, records[-1].trial + 1 if records else 0)
    return Queue(journal, setting, records), info


def share_untouched(shared: "SharedStudy | None", scores: Mapping[str, Any]) -> None:
    """Say to other workers how the given model scores."""
    if shared is not None:
        shared.share_untouched(scores)


def kinds_of(shared: "SharedStudy | None") -> dict[str, Kind]:
    """Return the kinds of devices that the study of a run is known to have by now; none for a run of its own."""
    return {} if shared is None else shared.kinds


def share_spent(shared: "SharedStudy | None", info: RunInfo) -> None:
    """Say to other workers what this one spent, if its database answers: its folder has it in any case."""
    if shared is None:
        return
    with suppress(TunerError):
        shared.spend(info.spent)
