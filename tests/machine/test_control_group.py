"""Limits of control groups: version 1, version 2, nested, of another namespace, and none."""

from pathlib import Path

import pytest

from tuner.machine import control_group
from tuner.search.budget import LEAST_BYTES, group_memory
from tuner.search.processes.guard import out_of_memory

GB = 10**9
Tree = dict[str, str]


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, own: str, mounts: list[str], files: Tree) -> None:
    """Make the files of a kernel with such groups; mounts are ``root place type options``."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(own)
    lines = []
    for number, mount in enumerate(mounts):
        root, place, kind, options = mount.split()
        lines.append(f"{number} 23 0:28 {root} {folder}/{place} rw,relatime - {kind} {kind} {options}")
    (proc / "mountinfo").write_text("\n".join(lines))
    monkeypatch.setattr(control_group, "SELF", proc)


def two(limit: object, current: int = 0, inactive: int = 0, cpu: str = "max 100000", kills: int = 0) -> Tree:
    stat = f"anon 5\ninactive_file {inactive}\n"
    events = f"low 0\noom 1\noom_kill {kills}\n"
    return {
        "memory.max": str(limit),
        "memory.current": str(current),
        "memory.stat": stat,
        "memory.events": events,
        "cpu.max": cpu,
    }


def one(limit: int, usage: int = 0, inactive: int = 0, kills: int = 0) -> Tree:
    stat = f"cache 1\ntotal_inactive_file {inactive}\n"
    oom = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "memory.oom_control")
    return dict(zip(names, (str(limit), str(usage), stat, oom), strict=True))


def at(place: str, tree: Tree) -> Tree:
    return {f"{place}/{name}": text for name, text in tree.items()}


NONE_1, UNIFIED = 9223372036854771712, ["/ sys cgroup2 rw"]
ROWS: dict[str, tuple[str, list[str], Tree, int | None, int | None, float | None]] = {
    "v2 container": ("0::/\n", UNIFIED, at("sys", two(GB, GB // 2, GB // 10, "150000 100000")), GB, 6 * GB // 10, 1.5),
    "v2 nested, above": (
        "0::/a/b\n",
        UNIFIED,
        {**at("sys/a/b", two("max", 10)), **at("sys/a", two(GB // 2, GB // 4)), **at("sys", {})},
        GB // 2,
        GB // 4,
        None,
    ),
    "v2 nested, own": (
        "0::/a/b\n",
        UNIFIED,
        {**at("sys/a/b", two(GB, 10, 0, "50000 100000")), **at("sys/a", two(2 * GB, 20, 0, "300000 100000"))},
        GB,
        GB - 10,
        0.5,
    ),
    "v2 no limit": ("0::/user\n", UNIFIED, at("sys/user", two("max")), None, None, None),
    "v2 bound at its own root": ("0::/docker/x\n", ["/docker/x sys cgroup2 rw"], at("sys", two(GB)), GB, GB, None),
    "v2 of another namespace": ("0::/../../x\n", UNIFIED, at("sys", two(GB)), GB, GB, None),
    "v1 container": (
        "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n",
        ["/docker/x mem cgroup rw,memory", "/docker/x cpu cgroup rw,cpu,cpuacct"],
        {
            **at("mem", one(GB, GB // 2, GB // 4)),
            **at("cpu", {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}),
        },
        GB,
        3 * GB // 4,
        2.0,
    ),
    "v1 nested": (
        "4:memory:/jobs/7\n",
        ["/ mem cgroup rw,memory"],
        {**at("mem/jobs/7", one(NONE_1, 5)), **at("mem/jobs", one(GB, 100)), **at("mem", one(NONE_1))},
        GB,
        GB - 100,
        None,
    ),
    "v1 no limit": (
        "4:memory:/\n1:cpu:/\n",
        ["/ mem cgroup rw,memory", "/ cpu cgroup rw,cpu"],
        {**at("mem", one(NONE_1)), **at("cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})},
        None,
        None,
        None,
    ),
    "hybrid": (
        "4:memory:/x\n0::/y\n",
        ["/ mem cgroup rw,memory", "/ uni cgroup2 rw"],
        {**at("mem/x", one(GB)), **at("uni/y", {})},
        GB,
        GB,
        None,
    ),
    "over its limit": ("0::/\n", UNIFIED, at("sys", two(GB, 2 * GB)), GB, 0, None),
    "nothing": ("", [], {}, None, None, None),
    "damaged": ("0::/\n", UNIFIED, at("sys", two("many", 1, 0, "x")), None, None, None),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_limits_are_those_of_the_group_and_of_those_above(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: tuple[str, list[str], Tree, int | None, int | None, float | None],
) -> None:
    own, mounts, files, limit, free, quota = row
    made(tmp_path, monkeypatch, own, mounts, files)
    assert (control_group.memory_limit(), control_group.free_memory(), control_group.processors()) == (
        limit,
        free,
        quota,
    )
    assert control_group.available_memory() <= (free if free is not None else 2**60)


@pytest.mark.parametrize(("cpu", "threads"), [("50000 100000", 1), ("150000 100000", 2), ("max 100000", 8)])
def test_processors_are_those_of_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: str, threads: int
) -> None:
    made(tmp_path, monkeypatch, "0::/\n", UNIFIED, at("sys", two("max", cpu=cpu)))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert control_group.usable_processors() == threads


def test_what_is_killed_at_a_limit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**at("sys/a", two(GB // 2, kills=2)), **at("sys", two("max", kills=3))}
    made(tmp_path, monkeypatch, "0::/a\n", UNIFIED, files)
    assert control_group.kills() == 5
    assert out_of_memory(300_000_000).startswith(
        "out of memory at the limit of 500.0 MB of its control group: give --memory 240MB, so that"
    )
    made(tmp_path / "none", monkeypatch, "", [], {"x": ""})
    assert out_of_memory().startswith("out of memory of this device: give a smaller --memory")


@pytest.mark.parametrize(("limit", "least"), [(GB, 600_000_000), (400_000_000, LEAST_BYTES), ("max", None)])
def test_a_run_may_add_what_its_group_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: object, least: int | None
) -> None:
    made(tmp_path, monkeypatch, "0::/\n", UNIFIED, at("sys", two(limit)))
    found = group_memory()
    assert (found is None) == (least is None)
    assert found is None or least is None or least <= found < GB
