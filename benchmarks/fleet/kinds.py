"""Kinds of devices with real limits, for `benchmarks.fleet`: workers on one core, on two, and in little memory.

They train for real. Each is a `tuner run` with its own folder, cache and feature store, on some of this machine's cores
(`taskset`), and one of them within ``--memory``. They run one after another, so that none slows another: one kind fills
a study, the others join it when its trials are done, measure their rates, and show all its trials by these alone; then
each trains the plans of the front that it shows. The search space is `smoke` with more epochs, so that a trial takes
longer than its start, and without heads in closed form, which have none.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.lib.report import Claim, Row
from tuner.results.records.trial import TrialRecord
from tuner.results.run import Run
from tuner.search.space import shipped

ONE, TWO, SMALL = "1 core", "2 cores", "1 core, little memory"
TASKSET = shutil.which("taskset") or ""
CORES = {ONE: 1, TWO: 2, SMALL: 1}
#: `--memory` of the small one: less than what most plans of digits take.
MEMORY = "40MB"
#: Trials of one kind; plans of a front that are trained again.
ALONE, QUICK_ALONE, AGAIN = 12, 4, 6
PRETRAINED = "pretrained"
SECONDS, BOUND, OFF = 300, 1.5, "measured of shown"
#: What is changed in the search space `smoke`.
LONGER = {"epochs = { low = 2, high = 10, log = true }": "epochs = { low = 40, high = 160 }", '"closed_form", ': ""}


class Kinds:
    """Workers of some kinds.

    Args:
        url: Address of a database.
        folder: For the workers' folders.
        task: Name or file of the task.
    """

    def __init__(self, url: str, folder: Path, task: str) -> None:
        self._url, self._folder, self._task, self._space = url, folder, task, folder / "longer.toml"
        text = (shipped()["smoke"]).read_text()
        for short, long in LONGER.items():
            if short not in text:
                raise RuntimeError(f"the search space smoke has no {short}")
            text = text.replace(short, long)
        self._space.write_text(text)

    def folder(self, kind: str, study: str) -> Path:
        """Return the folder of a kind's worker."""
        return self._folder / kind / study

    def run(self, kind: str, name: str, trials: int, *more: str) -> Path:
        """Run with a kind, in a folder of its own, and return that folder.

        Raises:
            RuntimeError: It failed, or ended early.
        """
        base, out = self._folder / kind, self.folder(kind, name)
        if not base.exists():  # each is given the same model
            base.mkdir()
            for given in list(self._folder.glob(f"*/cache/{PRETRAINED}"))[:1]:
                shutil.copytree(given, base / "cache" / PRETRAINED)
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: CORES[kind]]))
        memory = ("--memory", MEMORY) if kind == SMALL else ()
        asked = (self._task, "--space", str(self._space), "--time", f"{SECONDS}s", "--storage", "500MB", *memory, *more)
        folders = ("--out", str(out), "--store", str(base / f"store-{name}"))
        done = subprocess.run(
            [TASKSET, "-c", cores, sys.executable, "-m", "tuner", "run", *asked, "--trials", str(trials), *folders],
            env={**os.environ, "TUNER_CACHE": str(base / "cache")}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        end = done.stdout.partition("\nended: ")[2].partition("\n")[0]
        if done.returncode or not end.endswith("trials are done"):
            raise RuntimeError(f"the run with {kind} ended with {done.returncode}, early: {done.stdout[-2000:]}")
        return out

    def share(self, kind: str, study: str, trials: int, *more: str) -> Path:
        """Let a worker of a kind join a study, and wait until all trials are done."""
        return self.run(kind, study, trials, "--from", "none", "--study", f"{self._url}#{study}", *more)


Values = Mapping[str, Mapping[str, float]]


def translated(kinds: Kinds, trials: int, origins: Sequence[str]) -> tuple[list[Row], list[Claim]]:
    """Let one kind fill a study; compare what others show of its trials with what these take there.

    A kind shows them first by its rates alone, then with as many trials of its own. The machine is busier at one time
    than at another: so plans are trained again on all kinds, one right after the other, and ratios are compared.
    """
    rows: list[Row] = []
    for origin in origins:
        study, others = f"of-{CORES[origin]}", [one for one in CORES if one != origin]
        first = _values(kinds.share(origin, study, trials))
        shown = {(kind, 0): _values(kinds.share(kind, study, trials)) for kind in others}
        for kind in others[:1]:  # which has all the memory that it needs
            shown[kind, trials] = _values(kinds.share(kind, study, 2 * trials, "--resume"))
        start = "--from", str(kinds.folder(origin, study))
        again = {kind: _values(kinds.run(kind, f"again-{study}", AGAIN, *start)) for kind in (origin, *others)}
        for (kind, own), expected in shown.items():
            plans = [plan for plan in again[origin] if plan in first and plan in expected and plan in again[kind]]
            row = {"measured on": origin, "shown on": kind, "trials of its own": own, "plans": len(plans)}
            if plans:  # a kind of little memory may train none of them
                rows.append(row | _ratios(plans, (first, expected), (again[origin], again[kind])))
    equal = _worst([row for row in rows if {row["measured on"], row["shown on"]} == {ONE, SMALL}])
    claims = []
    for few, when in ((True, "by its rates alone"), (False, f"after {trials} trials of its own")):
        worst = _worst([row for row in rows if (row["trials of its own"] == 0) == few])
        claim = f"seconds that a kind shows of another's trials are what they take there, {when}: median within {BOUND}"
        busy = f"{equal:.2f} times between equal devices, one after the other"
        claims.append(Claim(claim, "project's bound", f"{worst:.2f} times; {busy}", worst <= BOUND))
    return rows, claims


def _worst(rows: Sequence[Row]) -> float:
    """Return the largest factor by which medians are off."""
    found = [float(str(row[OFF])) for row in rows]
    return max((max(one, 1 / one) for one in found), default=1.0)


def _ratios(plans: Sequence[str], shown: tuple[Values, Values], measured: tuple[Values, Values]) -> dict[str, float]:
    """Return what costs are shown and measured on a kind, relative to the kind that ran the trials; medians of plans.

    Args:
        plans: To compare.
        shown: Values on the one kind, and as the other shows them.
        measured: Values on both.
    """

    def ratios(name: str, values: tuple[Values, Values]) -> list[float]:
        return [values[1][plan][name] / values[0][plan][name] for plan in plans]

    seconds = [ratios("train_seconds", values) for values in (shown, measured)]
    off = [found / expected for expected, found in zip(*seconds, strict=True)]
    nbytes = [median(ratios("peak_bytes", values)) for values in (shown, measured)]
    return {
        "seconds shown, ratio": median(seconds[0]), "measured": median(seconds[1]), OFF: median(off),
        "least": min(off), "most": max(off), "bytes shown, ratio": nbytes[0], "bytes measured": nbytes[1],
    }  # fmt: skip


def _values(folder: Path) -> Values:
    """Return what trials measured, by plan."""
    return {_asked(one): one.values for one in Run.open(folder).records if one.values and one.same_as is None}


def _asked(record: TrialRecord) -> str:
    """Return what is equal for the same plan on each kind."""
    return str(sorted((name, value) for name, value in record.knobs.items() if name != "runtime.threads"))


def measure_kinds(url: str, folder: Path, task: str, *, quick: bool) -> tuple[list[Row], list[Claim]]:
    """Measure kinds of devices one after another.

    Args:
        url: Address of a database.
        folder: For the workers' folders.
        task: Name or file of the task.
        quick: Whether to take fewer trials.

    Raises:
        FileNotFoundError: There is no `taskset`.
        RuntimeError: There are too few cores, or a worker failed.
    """
    if not TASKSET:
        raise FileNotFoundError("kinds need taskset: apt install util-linux")
    if len(os.sched_getaffinity(0)) < max(CORES.values()):
        raise RuntimeError(f"kinds need {max(CORES.values())} cores")
    folder.mkdir()
    return translated(Kinds(url, folder, task), QUICK_ALONE if quick else ALONE, (ONE,) if quick else (ONE, TWO))
