"""Limits, also with trials that mean harm: the wall clock, the memory of all their processes, and the parent's own.

The command line in a process of its own, on digits, with `benchmarks.limits.misdeeds` as a local plugin: the first
trial trains, every later one misbehaves in one way. The overrun is of the whole command, from its start to its exit,
with nothing of it left running. A run whose trials all train is measured too, and one whose time is over while
libraries are still being imported. Memory is read from outside, every 5 ms: of every process below the one that trials
are forked from, what it has more than that one. Ending early is not judged: where the process that trials are forked
from is lost too often, or every plan has failed, a run may.

Then 500 trials that train nothing: how much memory the parent has, and how much each trial adds after the first 256.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from benchmarks.lib.places import ROOT
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.limits.misdeeds import MISDEEDS, TRAINS
from tuner.errors import DONE, LIMIT, MISTAKE, NO_TRIAL_FITS
from tuner.search.processes.job_memory import sizes
from tuner.search.processes.process_tree import children, descendants
from tuner.search.propose.surrogate import LEARNS_FROM

BUDGETS, QUICK_BUDGETS = (20.0, 60.0, 180.0), (20.0,)
#: Seconds that are over while libraries are still being imported.
IMPORTING = 2.0
TIME_SHARE, TIME_SECONDS = 0.02, 1.0
#: Exit codes of a run that ends by itself, or by the last fence.
CODES = frozenset({DONE, MISTAKE, LIMIT, NO_TRIAL_FITS})
LIMIT_BYTES, MEMORY_SHARE = 300_000_000, 0.1
PARENT_BYTES, SLOPE_BYTES = 120_000_000, 16_000
#: Trials that train nothing, in all and in a quick run. What each adds is counted from the trial on from which the
#: surrogate's matrices grow no more; before that, pages of the heap are touched for the first time.
TRIVIAL, QUICK_TRIVIAL, WARM = 500, 400, LEARNS_FROM
#: Most seconds from the end of a command to its last line.
LINE_SECONDS = 5.0
NAMES = [TRAINS, *MISDEEDS]


@dataclass(slots=True)
class Watched:
    """A command that was watched from its start to its end.

    Attributes:
        seconds: Wall time.
        exit_code: Its exit code.
        line: Its last line on stderr.
        counts: Trials by state.
        group_bytes: Most memory of all processes of a job above the process that they are forked from.
        parent_bytes: Most resident memory of the command's own process.
        by_trial: The same after each number of trials.
        left: Processes that outlived it.
    """

    seconds: float = 0.0
    exit_code: int = 0
    line: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    group_bytes: int = 0
    parent_bytes: int = 0
    by_trial: dict[int, int] = field(default_factory=dict)
    left: int = 0


def watched(misdeed: str, arguments: Sequence[str], folder: Path) -> Watched:
    """Run the command line with a misdeed and watch it from outside."""
    out = folder / f"run-{len(list(folder.glob('run-*')))}"
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    added = {"TUNER_CACHE": str(folder / "cache"), "PYTHONPATH": path, "MISDEED": misdeed, "WATCHED": mark}
    command = [sys.executable, "-m", "tuner", "run", "digits", "--space", "smoke", "--backend", "hostile"]
    plugin = ["--plugin", str(Path(__file__).with_name("misdeeds.py")), "--json", "--out", str(out)]
    seen, started = Watched(), time.monotonic()
    with (
        (folder / "errors").open("w+b") as errors,
        (folder / "printed").open("w+b") as printed,
        subprocess.Popen(
            [*command, *plugin, *arguments], env={**os.environ, **added}, stdout=printed, stderr=errors
        ) as process,
    ):
        while process.poll() is None:
            look(process.pid, out, seen)
            time.sleep(0.005)
        seen.seconds, seen.exit_code = time.monotonic() - started, process.returncode
        end = time.monotonic() + LINE_SECONDS
        while seen.exit_code and not errors.seek(0, os.SEEK_END) and time.monotonic() < end:
            time.sleep(0.05)  # a command that was ended is spoken for by a process of its own
        errors.seek(max(0, errors.tell() - 4096))
        lines = errors.read().decode(errors="replace").splitlines()
        seen.line = lines[-1] if seen.exit_code and lines else ""
        printed.seek(0)
        text = printed.read()
        seen.counts = json.loads(text)["counts"] if text else {}
    there = filter(None, (one.info["environ"] for one in psutil.process_iter(["environ"])))  # those that may be read
    seen.left = sum(mark in variables.get("WATCHED", "") for variables in there)
    return seen


def look(parent: int, out: Path, seen: Watched) -> None:
    """Note what the command takes now."""
    own = sizes(parent)
    if own is not None:
        seen.parent_bytes = max(seen.parent_bytes, own.resident)
        records = out / "trials.jsonl"
        if records.exists():
            seen.by_trial[records.stat().st_size] = own.resident
    for server in children(parent):
        rest = sizes(server)
        if rest is None:
            continue
        jobs = filter(None, map(sizes, descendants(server)))
        taken = sum(max(0, job.own - rest.own) for job in jobs)
        seen.group_bytes = max(seen.group_bytes, taken)


def hostile_row(misdeed: str, budget: float, folder: Path) -> Row:
    """Run one misdeed under one budget."""
    limits = ["--time", f"{budget:g}s", "--memory", f"{LIMIT_BYTES}B", "--storage", "1GB", "--trials", "100000"]
    seen = watched(misdeed, limits, folder)
    return {
        "misdeed": misdeed, "budget s": budget, "over s": round(seen.seconds - budget, 2),
        "allowed s": round(TIME_SHARE * budget + TIME_SECONDS, 2), "group MB": round(seen.group_bytes / 1e6),
        "parent MB": round(seen.parent_bytes / 1e6), "exit": seen.exit_code,
        **{state: seen.counts.get(state, 0) for state in ("done", "killed", "failed")}, "left": seen.left,
        "line": seen.line[:200],
    }  # fmt: skip


def trivial_row(trials: int, folder: Path) -> Row:
    """Run trials that train nothing."""
    seen = watched("nothing", ["--trials", str(trials), "--time", "1h"], folder)
    readings = np.array(list(seen.by_trial.values())[WARM:], np.float64)
    numbers = np.arange(len(readings))
    slope = float(np.polyfit(numbers, readings, 1)[0]) if len(readings) > 1 else float("nan")
    return {
        "trivial trials": seen.counts.get("done", 0), "seconds": round(seen.seconds, 1),
        "parent MB": round(seen.parent_bytes / 1e6, 1), "kB a trial": round(slope / 1e3, 2), "exit": seen.exit_code,
        "line": seen.line[:200],
    }  # fmt: skip


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Compare the figures with the project's bounds."""
    late = [row for row in rows if float(str(row["over s"])) > float(str(row["allowed s"]))]
    most = max(float(str(row["over s"])) for row in rows)
    group = max(int(str(row["group MB"])) for row in rows)
    parent = max(int(str(row["parent MB"])) for row in rows)
    kept = [row for row in rows if row["misdeed"] == "sleeps"][-1:]  # of the longest budget
    odd = [row for row in rows if row["left"] or row["exit"] not in CODES or (row["exit"] and not row["line"])]
    limit, bound = "project's bound", (1 + MEMORY_SHARE) * LIMIT_BYTES / 1e6
    return [
        Claim(f"no command exceeds its deadline by more than {TIME_SHARE:.0%} + {TIME_SECONDS:g} s", limit,
              f"{len(late)} of {len(rows)} do; {most:.2f} s at most", not late,
              "; ".join(f"{row['misdeed']}: {row['over s']} s" for row in late)),
        Claim(f"a job's processes never take more than the limit and {MEMORY_SHARE:.0%}", limit,
              f"{group} MB at most, {bound:.0f} MB are allowed", group <= bound),
        Claim(f"the parent's resident memory is at most {PARENT_BYTES / 1e6:.0f} MB", limit, f"{parent} MB at most",
              parent <= PARENT_BYTES / 1e6),
        Claim("a command ends with its result or with one line, and leaves no process", limit,
              f"{len(odd)} of {len(rows)} do not", not odd,
              "; ".join(f"{row['misdeed']}: exit {row['exit']}, {row['left']} left" for row in odd)),
        *(
            Claim(f"a trial that sleeps is killed, and what was done before it is kept ({row['budget s']:g} s)",
                  limit, f"{row['done']} done, {row['killed']} killed", bool(row["done"] and row["killed"]),
                  "" if row["done"] or row["killed"] else "no trial began in this time: the machine is busy")
            for row in kept
        ),
    ]  # fmt: skip


def slope_claim(row: Row, trials: int) -> Claim:
    """Compare the memory that a trial adds with the project's bound."""
    slope = float(str(row["kB a trial"]))
    return Claim(
        f"after {WARM} of {trials} trivial trials, the parent grows by less than {SLOPE_BYTES / 1e3:.0f} kB a trial",
        "project's bound",
        f"{slope:.1f} kB; {row['parent MB']} MB at most",
        slope < SLOPE_BYTES / 1e3,
    )


def main() -> None:
    """Run, print, write."""
    parser = benchmark_parser(__doc__, "budgets of 20 s only, and 400 trivial trials")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--budgets", nargs="*", type=float, default=BUDGETS, metavar="SECONDS")
    asked = parser.parse_args()
    trials = QUICK_TRIVIAL if asked.quick else TRIVIAL
    rows, trivial, judged = list[Row](), list[Row](), list[Claim]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        watched("nothing", ["--trials", "2", "--memory", f"{LIMIT_BYTES}B"], folder)  # pretrains and measures, once
        for budget in QUICK_BUDGETS if asked.quick else asked.budgets:
            rows += [hostile_row(one, budget, folder) for one in asked.only if one != "nothing"]
        if TRAINS in asked.only:
            rows.append(hostile_row(TRAINS, IMPORTING, folder))
        if rows:
            judged += claims(rows)
        if "nothing" in asked.only:
            trivial.append(trivial_row(trials, folder))
            judged.append(slope_claim(trivial[0], trials))
    finish("deadline", [*rows, *trivial], judged, asked.json)


if __name__ == "__main__":
    main()
