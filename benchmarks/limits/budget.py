"""Limits that hold: `--time` beside the wall clock, and how long a trial lives after it crosses `--memory`.

Time: the command line in a process of its own, from its start to its exit, on digits: as it is; with a trial that
sleeps forever and ignores the request to stop; with a limit that is over while libraries are still being imported.
Exceeding it is allowed by 2 % + 3 s. Ending early is not judged, as a study that has nothing left to try may.

Memory: a job takes memory slowly, faster, and as fast as it can. It notes the clock when its own resident size, less
its resting size, is over the limit; the parent notes the clock when the process is gone. The clock
(`time.monotonic`, CLOCK_MONOTONIC) is the same for all processes of a machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from benchmarks.lib.delegate import Delegate
from benchmarks.lib.places import ROOT
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from tuner.backends.base import Backend, Session, Trial, silent
from tuner.backends.extensions import Extensions
from tuner.backends.torch.backend import TorchBackend
from tuner.plugin.hookspecs import hookimpl
from tuner.results.records.trial import Outcome
from tuner.search.processes.guard import JobLimits
from tuner.search.processes.messages import Job, Start
from tuner.search.processes.supervisor import Supervisor
from tuner.task import Task
from tuner.training.epochs import Report

TIME_SHARE, TIME_SECONDS = 0.02, 3.0
KILL_SECONDS = 0.1
LIMIT_BYTES = 200_000_000
CHUNK_BYTES = {"slow": (1_000_000, 0.002), "faster": (10_000_000, 0.002), "at once": (50_000_000, 0.0)}
SLEEPS_FROM = 2  # the trial that sleeps; those before it end


class Sleeper(TorchBackend):
    """PyTorch's backend, but from the third trial on it sleeps, and hears nothing."""

    name = "sleeper"

    def open(self, task: Task, extensions: Extensions) -> Session:
        """Open the task in a session that misbehaves."""
        return SleepingSession(super().open(task, extensions))


class SleepingSession(Delegate):
    """Trains twice, then sleeps."""

    def train(self, trial: Trial) -> Outcome:
        """Train, or sleep forever."""
        if int(trial.weights.parent.name) < SLEEPS_FROM:
            return super().train(trial)
        trial.report({"resting_bytes": psutil.Process().memory_info().rss})
        while True:
            time.sleep(3600)

    def hoard(self, chunk_bytes: int, pause: float, note: str, report: Report = silent) -> None:
        """Take memory until killed; note the clock when the limit is crossed."""
        process, held = psutil.Process(), []
        resting = process.memory_info().rss
        report({"resting_bytes": resting})
        file = os.open(note, os.O_WRONLY | os.O_CREAT)
        crossed = False
        while True:
            held.append(np.ones(chunk_bytes, np.uint8))
            if not crossed and process.memory_info().rss - resting > LIMIT_BYTES:
                os.write(file, repr(time.monotonic()).encode())
                crossed = True
            time.sleep(pause)


@hookimpl
def tuner_backends() -> Iterable[Backend]:
    """Offer the backend that misbehaves."""
    return [Sleeper()]


def install(folder: Path) -> dict[str, str]:
    """Register this module as a plugin, and return the environment in which processes find it."""
    about = folder / "site" / "budget-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: budget\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tuner]\nbudget = benchmarks.limits.budget\n")
    path = os.pathsep.join([str(folder / "site"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "TUNER_CACHE": str(folder / "cache")}


def time_row(what: str, seconds: float, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Row:
    """Run the command line with a limit and say by how much it was exceeded."""
    out = folder / f"run-{what.replace(' ', '-')}"
    command = [sys.executable, "-m", "tuner", "run", "digits", "--space", "smoke", *arguments]
    limits = ["--time", f"{seconds:g}s", "--trials", "1000"]
    started = time.monotonic()
    done = subprocess.run(
        [*command, *limits, "--out", str(out), "--json"],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.monotonic() - started
    counts = json.loads(done.stdout)["counts"] if done.stdout else {}
    return {
        "what": what,
        "limit s": seconds,
        "wall s": round(wall, 2),
        "over s": round(wall - seconds, 2),
        "allowed s": round(TIME_SHARE * seconds + TIME_SECONDS, 2),
        "exit": done.returncode,
        "done": counts.get("done", 0) + counts.get("stopped", 0),
        "killed": counts.get("killed", 0),
        "said": "" if done.returncode == 0 else done.stderr.splitlines()[-1],
    }


def warm_up(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Let the backend's rates be measured, so that the next run comes to its trials whatever the machine does."""
    command = [sys.executable, "-m", "tuner", "run", "digits", "--space", "smoke", "--time", "10m", "--trials", "1"]
    out = str(folder / "warm-up")
    subprocess.run([*command, *arguments, "--out", out], env=dict(environment), capture_output=True, check=True)


def kill_seconds(repeats: int, folder: Path) -> dict[str, list[float]]:
    """Return the seconds from crossing the memory limit to being gone, by how fast memory is taken."""
    from tuner.task import open_task
    from tuner.task.builtin import digits

    task = open_task("digits", {"digits": digits})
    found: dict[str, list[float]] = {name: [] for name in CHUNK_BYTES}
    with Supervisor(Start((), task, ("sleeper",), many_jobs=False)) as supervisor:
        for number in range(repeats):
            for name, (chunk, pause) in CHUNK_BYTES.items():
                note = folder / f"{name}-{number}"
                arguments = {"chunk_bytes": chunk, "pause": pause, "note": str(note)}
                job = Job("sleeper", "hoard", arguments, reports=True)
                ended = supervisor.run(job, JobLimits(memory_bytes=LIMIT_BYTES))
                gone = time.monotonic()
                if ended.verdict != "memory":
                    raise SystemExit(f"the job that hoards ended otherwise: {ended}")
                crossed = note.read_text()  # empty where it was gone before it could look
                found[name].append(gone - float(crossed) if crossed else 0.0)
    return found


def judge(rows: Sequence[Row], kills: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Compare the figures with the project's bounds."""
    load = f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"
    within = all(float(str(row["over s"])) <= float(str(row["allowed s"])) for row in rows)
    slept = next(row for row in rows if row["what"] == "a trial sleeps")
    worst = max(max(values) for values in kills.values())
    everything = [value for values in kills.values() for value in values]
    return [
        Claim(
            "--time is never exceeded by more than 2 % + 3 s, even when one trial sleeps forever",
            "project's bound",
            "; ".join(f"{row['what']}: {row['over s']} s over {row['limit s']} s" for row in rows),
            within and slept["exit"] == 0,
        ),
        Claim(
            "the trial that sleeps is killed, and what was done before it is kept",
            "project's bound",
            f"{slept['done']} done, {slept['killed']} killed, exit {slept['exit']}",
            slept["killed"] == 1 and 1 <= int(str(slept["done"])) <= SLEEPS_FROM,
        ),
        Claim(
            "a trial over --memory is killed within 100 ms of crossing",
            "project's bound",
            f"{1000 * worst:.0f} ms at most, median {1000 * median(everything):.0f} ms of {len(everything)}; {load}",
            worst <= KILL_SECONDS,
        ),
    ]


def main() -> None:
    """Measure, print, judge."""
    arguments = benchmark_parser(__doc__, "one limit each, few kills: under 2 minutes").parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = install(folder)
        os.environ.update(environment)
        sleeper, plain = ["--backend", "sleeper"], ["--backend", "torch"]
        rows.append(time_row("nothing known yet", 30.0, plain, folder, environment))
        warm_up(sleeper, folder, environment)
        rows.append(time_row("a trial sleeps", 25.0, sleeper, folder, environment))
        rows.append(time_row("while importing", 2.0, plain, folder, environment))
        if not arguments.quick:
            rows.append(time_row("ordinary", 60.0, plain, folder, environment))
            rows.append(time_row("a trial sleeps for long", 120.0, sleeper, folder, environment))
        sys.path.insert(0, str(folder / "site"))
        kills = kill_seconds(5 if arguments.quick else 30, folder)
    claims = judge(rows, kills)
    for name, values in kills.items():
        ms = {"median ms": round(1000 * median(values)), "most ms": round(1000 * max(values))}
        rows.append({"what": f"memory, {name}", **ms})
    finish("budget", rows, claims, arguments.json)


if __name__ == "__main__":
    main()
