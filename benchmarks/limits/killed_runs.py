"""Runs of the digits that are killed at random moments and resumed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tuner.results.folder import TRIALS

ENDING = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: Whom a signal goes to, and which are sent: SIGINT is for the whole group and the main process, the others ignore it.
TARGETS = {"main": ENDING, "group": ENDING, "server": ENDING[:2], "trial": ENDING[:2]}
#: Shares of the kills.
SHARES = {"main": 0.3, "group": 0.3, "server": 0.2, "trial": 0.2}
ENDED_SECONDS = 60.0
SPACE = """
strategies = ["gdm", "freeze", "cache"]
[knobs.recipe]
epochs = [1, 2, 4]
"""


@dataclass
class Tally:
    """What came of kills of one kind.

    Attributes:
        kills: Signals sent.
        lost: Finished trials whose record was gone or changed after the next resume.
        repeated: Plans that were trained twice on a rung.
        tracebacks: Ends with a traceback.
        failed: Trials recorded as failed, since their process was ended.
        runs: Runs that were resumed to their end.
        identical: Runs with the sequence of trials, the values and the front of the undisturbed one.
    """

    kills: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    repeated: int = 0
    tracebacks: int = 0
    failed: int = 0
    runs: int = 0
    identical: int = 0


class Runs:
    """Runs of one task with one seed, in folders of their own.

    Args:
        home: Folder for all of them.
        trials: Trials of a run.
        seed: The study's seed.
    """

    def __init__(self, home: Path, trials: int, seed: int) -> None:
        self.home = home
        self._arguments = ["--deterministic", "--trials", str(trials), "--seed", str(seed), "--space", "space.toml"]
        (home / "space.toml").write_text(SPACE)

    def start(self, out: str, wrap: Sequence[str] = ()) -> "subprocess.Popen[str]":
        """Start or resume a run, in a process group of its own."""
        resume = ["--resume"] if (self.home / out / "run.json").exists() else []
        command = [sys.executable, "-m", "tuner", "run", "digits", *self._arguments, "--json", *resume]
        return subprocess.Popen(
            [*wrap, *command, "--out", out], cwd=self.home,
            env={**os.environ, "TUNER_CACHE": str(self.home / "cache")}, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def finish(self, out: str) -> str:
        """Resume a run to its end; return what it wrote to stderr if it failed."""
        process = self.start(out)
        error = process.communicate()[1]
        return error if process.returncode else ""

    def lines(self, out: str) -> list[str]:
        """Return the whole lines of a run's records."""
        path = self.home / out / TRIALS
        return (
            [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if path.exists()
            else []
        )

    def outcomes(self, out: str) -> list[tuple[Any, ...]]:
        """Return what must not depend on kills: each trial's number, state, plan and values."""
        records = map(json.loads, self.lines(out))
        return [(one["trial"], one["state"], one["key"], one["values"], one["same_as"]) for one in records]


def repeated(outcomes: Sequence[tuple[Any, ...]]) -> int:
    """Return how many plans were trained more than once."""
    keys = Counter(key for _, state, key, _, same_as in outcomes if state == "done" and same_as is None)
    return sum(count - 1 for count in keys.values())


def target_of(process: "subprocess.Popen[str]", target: str) -> Callable[[int], None] | None:
    """Return a function that sends a signal to the target; None where it does not live yet, or no longer."""
    if target == "main":
        return process.send_signal
    if target == "group":
        return lambda number: os.killpg(process.pid, number)
    with suppress(psutil.NoSuchProcess):
        servers = psutil.Process(process.pid).children()
        found = servers if target == "server" else [child for server in servers for child in server.children()]
        if found:
            return found[0].send_signal  # type: ignore[no-any-return]  # psutil ships no types
    return None


def kill_once(runs: Runs, out: str, target: str, draw: random.Random, seconds: float) -> str:
    """Start or resume a run and send it a signal; return its name, or nothing where the run ended before.

    Raises:
        RuntimeError: The run did not end.
    """
    process = runs.start(out)
    end = time.monotonic() + draw.uniform(0.0, 1.1 * seconds)
    number = draw.choice(TARGETS[target])
    sent = ""
    while process.poll() is None and not sent:
        send = target_of(process, target)
        if time.monotonic() >= end and send is not None:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                send(number)
                sent = number.name
        time.sleep(0.002)
    try:
        error = process.communicate(timeout=ENDED_SECONDS)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise RuntimeError(f"{out}: not ended {ENDED_SECONDS:.0f} s after {sent} to {target}") from None
    return f"{sent} traceback" if "Traceback" in error else sent


def killed(runs: Runs, target: str, kills: int, seconds: float, draw: random.Random) -> Tally:
    """Kill runs so many times, resume each to its end, and compare."""
    wanted, tally = runs.outcomes("whole"), Tally()
    while sum(tally.kills.values()) < kills:
        out, before = f"{target}-{tally.runs}", list[str]()
        while sum(tally.kills.values()) < kills and len(before) < len(wanted):
            sent = kill_once(runs, out, target, draw, seconds)
            after = runs.lines(out)
            tally.lost += sum(old != new for old, new in zip(before, [*after, *[""] * len(before)], strict=False))
            before = after
            tally.tracebacks += "traceback" in sent
            if sent:
                tally.kills[sent.split()[0]] += 1
        error = runs.finish(out)
        tally.tracebacks += "Traceback" in error
        after, outcomes = runs.lines(out), runs.outcomes(out)
        tally.lost += sum(old != new for old, new in zip(before, [*after, *[""] * len(before)], strict=False))
        tally.repeated += repeated(outcomes)
        tally.failed += sum(state == "failed" for _, state, *_ in outcomes)
        tally.identical += outcomes == wanted
        tally.runs += 1
    return tally
