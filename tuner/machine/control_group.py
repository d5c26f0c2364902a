"""What the control group of this process allows it: a container, a service or a job may have less than its machine.

Versions 1 and 2 are read, and the groups above, whose limits hold too. Elsewhere than on Linux there are none.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SELF = Path("/proc/self")
#: Version 1 writes a number near 2**63 where there is no limit.
NO_LIMIT = 1 << 60
#: Names of files by the version: limit, usage, what of it can be reclaimed (a line of `_STATISTICS`), kills.
_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
_STATISTICS = "memory.stat"
_RECLAIMABLE = {1: "total_inactive_file", 2: "inactive_file"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}


def memory_limit() -> int | None:
    """Return the bytes that this process and its group may have; None where nothing limits them."""
    return min((limit for _, _, limit in _limited()), default=None)


def free_memory() -> int | None:
    """Return the bytes that are left of `memory_limit`: pages of files that can be read again count as free."""
    left = []
    for folder, version, limit in _limited():
        usage = _number(folder / _USAGE[version])
        reclaimable = _values(folder / _STATISTICS).get(_RECLAIMABLE[version], 0)
        left.append(max(0, limit - max(0, (usage or 0) - reclaimable)))
    return min(left, default=None)


def available_memory() -> int:
    """Return the bytes that this process may still take: of the machine, and of its control group."""
    import psutil  # a process that predicts images does without

    free, own = int(psutil.virtual_memory().available), free_memory()
    return free if own is None else min(free, own)


def processors() -> float | None:
    """Return how many processors' time the group may use; None where that is not limited."""
    quotas = []
    for folder, version in _folders("cpu"):
        if version == 1:
            quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
        else:
            quota, period = (int(word) if word.isdecimal() else None for word in _words(folder / "cpu.max", 2))
        if quota is not None and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def usable_processors() -> int:
    """Return how many processors this process may use; where the system does not say so, how many there are."""
    # not on macOS and Windows
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processors()
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def kills() -> int:
    """Return how many processes of the group, and of those above, were killed so far because memory ran out."""
    return sum(_values(folder / _KILLS[version]).get("oom_kill", 0) for folder, version in _folders("memory"))


def _limited() -> list[tuple[Path, int, int]]:
    """Return the groups that have a limit of memory, with their version and the limit."""
    found = ((folder, version, _number(folder / _LIMIT[version])) for folder, version in _folders("memory"))
    return [(folder, version, limit) for folder, version, limit in found if limit is not None and limit < NO_LIMIT]


def _folders(controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a controller's groups, from this process's own up to the highest that can be seen."""
    for root, place, version in _mounts(controller):
        path = _own_path(controller, version)
        if path is None:
            continue
        inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()  # of another namespace
        folder = place / inside if ".." not in inside.parts else place
        yield from ((each, version) for each in (folder, *folder.parents) if each.is_relative_to(place))


def _mounts(controller: str) -> Iterator[tuple[Path, Path, int]]:
    """Yield root, place and version of the file systems that have a controller's groups."""
    for line in _text(SELF / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:  # noqa: PLR2004 - root and place; type, source and options
            continue
        root, place = (Path(text.replace("\\040", " ")) for text in fields[3:5])
        if kind[0] == "cgroup2":
            yield root, place, 2
        elif kind[0] == "cgroup" and controller in kind[-1].split(","):
            yield root, place, 1


def _own_path(controller: str, version: int) -> str | None:
    """Return the path of this process's group, as its kernel has it."""
    for line in _text(SELF / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (version == 1 and controller in names.split(",")) or (version != 1 and not names):
            return path
    return None


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")
    return ""


def _words(file: Path, count: int) -> list[str]:
    words = _text(file).split()
    return words if len(words) == count else [""] * count


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.lstrip("-").isdecimal() else None


def _values(file: Path) -> dict[str, int]:
    """Return the numbers of a file of lines such as ``inactive_file 4096``."""
    lines = (line.split() for line in _text(file).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}  # noqa: PLR2004
