"""The memory of a job: of its process, of all that this starts, and of files in memory. Linux: read from ``/proc``.

The job's process alone is judged by its resident memory, as it measures itself: one small file to read. Where it has
started others, pages that they share count once: proportional shares are added up, over the process that it was forked
from too. Files in memory are those below ``/dev/shm`` and ``memfd_create``'s, as far as no process maps them.
"""

# ruff: noqa: PTH115, PTH116, PTH123, PTH208 - read every 10 ms, and paths as objects take as long as the reading

import os
import signal
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tuner.search.processes.family import descendants, kill_group, state, take_precedence

SHM = Path("/dev/shm")  # noqa: S108 - it is watched, nothing is written there
#: What a job may take before it says that it rests, as a share of its limit: imports, and threads of the libraries.
RESTING_SHARE, RESTING_BYTES = 0.05, 8_000_000
#: Readings between two looks for further processes, and for files in memory, while there are none.
OTHERS_EVERY, FILES_EVERY = 2, 4
#: More processes than a job may start: those that double need to be stopped before they keep every core busy.
MOST_PROCESSES = max(32, 4 * (os.cpu_count() or 1))
#: How long the shares of several processes are waited for.
READING_SECONDS = 0.01
#: A job with more processes than this may be one that starts them without end.
CROWD = 8
#: Readings in a row that may be put off because processes come and go meanwhile.
MOST_CHANGES = 5


class Sizes(NamedTuple):
    """Memory of one process in bytes.

    Attributes:
        resident: All that is in memory.
        own: Without what is mapped from files on a disk.
        shared: The part of `own` that is shared memory.
    """

    resident: int
    own: int
    shared: int


class GroupShares(NamedTuple):
    """Memory of several processes, each page counted once, without files on a disk; and what each has for itself."""

    total: int
    private: int


class JobMemory:
    """Reads the memory of one job above that of a job that rests.

    Attributes:
        pid: The job's process, which leads the group of those that it starts.

    Args:
        pid: The job's process.
        server: Process that it was forked from.
        spare: Processes that the latter had started before.
        before: Names below ``/dev/shm`` before it was forked.
        limit: Bytes that the job may take; None for no limit.
    """

    def __init__(
        self, pid: int, server: int, spare: Collection[int], before: Collection[str], limit: int | None
    ) -> None:
        self.pid, self._server, self._spare = pid, server, spare
        forked = sizes(server)
        self._forked = forked.own if forked else 0
        self._slack = RESTING_BYTES + RESTING_SHARE * (limit or 0)
        self._resting: int | None = None
        self._group_rest: int | None = None
        self._last_in_all = self._changing = 0
        self._reading: _SharesReading | None = None
        self._others: list[int] = []
        self._files: dict[tuple[int, int], Path] = {}
        self._before = before
        self._turn = 0

    @property
    def processes(self) -> int:
        """Processes that the job has, its own included."""
        return 1 + len(self._others)

    def rest(self, reported: int) -> None:
        """Take the job's word for its resident memory at rest, unless it has taken much since it was forked."""
        now = sizes(self.pid)
        if now is not None:
            grown = max(0.0, now.own - self._forked - self._slack)
            self._resting = min(reported, now.resident - int(grown))

    def above(self) -> int:
        """Return the bytes that the job takes above rest; 0 where its process has ended."""
        self._turn += 1
        now = sizes(self.pid)
        if now is None:
            return 0
        if self._others or self._turn % OTHERS_EVERY == 0:
            self._others = self._started()
            if len(self._others) > CROWD:
                take_precedence()
        in_files = self._find_files() if self._files or self._turn % FILES_EVERY == 0 else 0
        above = now.own - self._forked if self._resting is None else now.resident - self._resting
        if not self._others:
            self._group_rest = None
        elif len(self._others) < MOST_PROCESSES:
            above = max(above, self._above_in_all(above))
        return max(0, above + max(0, in_files - now.shared))

    def _started(self) -> list[int]:
        return [one for one in descendants(self._server, self._spare) if one != self.pid]

    def _above_in_all(self, above: int) -> int:
        """Return the bytes of all processes above rest; while they are read, those of the last reading and the growth.

        Args:
            above: Those of the job's own process.
        """
        if self._reading is None:
            self._reading = _SharesReading((self._server, self.pid), self._others)
        self._reading.join(READING_SECONDS)
        if self._reading.is_alive():
            return self._last_in_all + self._reading.grown()
        shares, self._reading = self._reading.shares, None
        if self._started() != self._others and self._changing < MOST_CHANGES:
            self._changing += 1  # shares read before and after a process was started do not add up
            return self._last_in_all
        self._changing = 0
        if self._group_rest is None:
            self._group_rest = shares.total - above - shares.private
        self._last_in_all = shares.total - self._group_rest
        return self._last_in_all

    def wake(self) -> None:
        """Continue the job where it is stopped while the process that it was forked from is not."""
        if state(self.pid) == "T" and state(self._server) != "T":
            kill_group(self.pid, signal.SIGCONT)

    def remove_files(self) -> None:
        """Remove what the job has left below ``/dev/shm``; what was there before it, and folders, stay."""
        for path in self._files.values():
            if path.parent == SHM and path.name not in self._before:
                with suppress(OSError):  # a folder, or another user's
                    path.unlink()

    def _find_files(self) -> int:
        """Return the bytes of the job's files in memory; what it writes is open, at least for a while."""
        found: dict[tuple[int, int], int] = {}
        for path in self._files.values():
            with suppress(OSError):
                about = path.stat()
                found[about.st_dev, about.st_ino] = 512 * about.st_blocks
        for pid in (self.pid, *self._others):
            with suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with suppress(OSError):
                        name = os.readlink(f"/proc/{pid}/fd/{number}")
                        if self._is_new(name):
                            about = os.stat(f"/proc/{pid}/fd/{number}")
                            self._files[about.st_dev, about.st_ino] = Path(name)
                            found[about.st_dev, about.st_ino] = 512 * about.st_blocks
        return sum(size for key, size in found.items() if key in self._files)

    def _is_new(self, name: str) -> bool:
        if name.startswith("/memfd:"):
            return True
        return name.startswith(f"{SHM}/") and name.split("/")[3] not in self._before


def sizes(pid: int) -> Sizes | None:
    """Return the memory of a process; None where it has ended."""
    values: dict[bytes, int] = {}
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"VmRSS:", b"RssAnon:", b"RssShmem:")):
                    name, number, _ = line.split()
                    values[name] = 1024 * int(number)
    except OSError:
        return None
    if len(values) < len(Sizes._fields):
        return None
    return Sizes(values[b"VmRSS:"], values[b"RssAnon:"] + values[b"RssShmem:"], values[b"RssShmem:"])


class _SharesReading(threading.Thread):
    """Reads shares in a thread: the kernel lets a reader wait while a process forks, and some fork without end."""

    def __init__(self, family: Collection[int], others: Collection[int]) -> None:
        super().__init__(daemon=True)
        self._family, self._others, self.shares = family, others, GroupShares(0, 0)
        self._began = {pid: now.own for pid in others if (now := sizes(pid))}
        self.start()

    def grown(self) -> int:
        """Return the bytes that the other processes have taken since it began."""
        return sum(now.own - own for pid, own in self._began.items() if (now := sizes(pid)))

    def run(self) -> None:
        """Read."""
        self.shares = _shares(self._family, self._others)


def _shares(family: Collection[int], others: Collection[int]) -> GroupShares:
    total = private = 0
    for pid in (*family, *others):
        with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                    total += 1024 * int(line.split()[1])
                elif pid in others and line.startswith(b"Private_Dirty:"):
                    private += 1024 * int(line.split()[1])
    return GroupShares(total, private)


def names_in_memory() -> frozenset[str]:
    """Return the names below ``/dev/shm``."""
    with suppress(OSError):
        return frozenset(os.listdir(SHM))
    return frozenset()
