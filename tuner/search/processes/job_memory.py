"""The memory of a job: of its process, and of all that this starts. Linux: read from ``/proc``.

The process alone is judged by its resident memory, as it measures itself; with others, by proportional shares, so that
pages that they share with each other and with the process that it was forked from count once.
"""

# ruff: noqa: PTH123 - read every 10 ms, and paths as objects take as long as the reading

import os
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from tuner.machine.control_group import kills
from tuner.search.processes.process_tree import descendants, kill_group, state

#: Readings between two looks for further processes, while there are none.
OTHERS_EVERY = 2
#: More processes than a job may start: those that fork by accident need to be stopped before they keep every core busy.
MOST_PROCESSES = max(32, 4 * (os.cpu_count() or 1))


class Sizes(NamedTuple):
    """Memory of one process in bytes: all that is resident, and that without what is mapped from files on a disk."""

    resident: int
    own: int


class JobMemory:
    """Reads the memory of one job above its baseline: what it had when it was forked, or when it said that it rests.

    Its process ``pid`` leads the group of those that it starts. Excluded are those that ``server``, from which it was
    forked, had started before. ``has_ended`` says what the last reading found.
    """

    def __init__(self, pid: int, server: int, excluded: Collection[int]) -> None:
        self.pid, self._server, self._excluded = pid, server, excluded
        self.has_ended = False
        forked = sizes(server)
        self._forked = forked.own if forked else 0
        self._resident_baseline: int | None = None
        # where only the job was forked from it, all that the process has counts once: shares take long to read
        self._group_baseline = self._group_bytes(()) if excluded else self._forked
        self._others: list[int] = []
        self._group_above = self._turn = 0

    @property
    def processes(self) -> int:
        """Processes that the job has, its own included."""
        return 1 + len(self._others)

    def set_baseline(self, resident: int) -> None:
        """Count from what the job's process had in memory a moment ago, as it says, instead of from its fork."""
        now = sizes(self.pid)
        if now is not None:
            self._resident_baseline = resident
            self._group_baseline = self._group_bytes(self._started()) - (now.resident - resident)

    def bytes_above_baseline(self) -> int:
        """Return the bytes that the job has taken; 0 where its process has ended."""
        self._turn += 1
        now = sizes(self.pid)
        self.has_ended = now is None
        if now is None:
            return 0
        if self._others or self._turn % OTHERS_EVERY == 0:
            self._others = self._started()
        baseline = self._resident_baseline
        above = now.own - self._forked if baseline is None else now.resident - baseline
        if self._others and len(self._others) < MOST_PROCESSES:
            group = self._group_bytes(self._others)
            if self._started() == self._others:  # else shares read before and after a fork do not add up
                self._group_above = group - self._group_baseline
            above = max(above, self._group_above)
        return max(0, above)

    def wake(self) -> None:
        """Continue the job where it is stopped while the process that it was forked from is not."""
        if state(self.pid) == "T" and state(self._server) != "T":
            kill_group(self.pid, signal.SIGCONT)

    def _started(self) -> list[int]:
        return [child for child in descendants(self._server, self._excluded) if child != self.pid]

    def _group_bytes(self, others: Iterable[int]) -> int:
        """Return the memory of all processes without files on a disk; of a page, each has its share."""
        total = 0
        for pid in (self._server, self.pid, *others):
            with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                shares = [line for line in file if line.startswith((b"Pss_Anon:", b"Pss_Shmem:"))]
                total += sum(1024 * int(line.split()[1]) for line in shares)
        return total


def sizes(pid: int) -> Sizes | None:
    """Return the memory of a process; None where it has ended."""
    values: dict[bytes, int] = {}
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith((b"VmRSS:", b"RssAnon:", b"RssShmem:")):
                name, number, _ = line.split()
                values[name] = 1024 * int(number)
    if len(values) <= len(Sizes._fields):  # of a process that has ended
        return None
    return Sizes(values[b"VmRSS:"], values[b"RssAnon:"] + values[b"RssShmem:"])


def oom_kills() -> int:
    """Return how many processes were killed so far because memory ran out: the system's, or the control group's."""
    with suppress(OSError), open("/proc/vmstat", encoding="ascii") as file:
        return kills() + next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    return kills()
