"""What a prior of other tasks brings to one minute: twenty tasks, each left out in turn.

Each task is tuned without a prior for two minutes. Then it is tuned for one minute by another seed, with the prior that
`tuner prior build` makes of the other nineteen runs; with `--apart`, of those of other data, as five tasks are of the
same digits, and seven of the same muscle signals. Every run has an empty store. A short run before the first one trains
the given model and measures the device, so that no arm pays for it.

Compared is the hypervolume of (local, global) accuracy on the highest rung that both runs have reached, as scores of
different rungs are of different samples. Where the model may forget all, it is the best local accuracy. A run with a
prior is behind where it ends below rung 0, and the other does not.

The table also shows what the search of 2026-11-25 reached in two minutes without a prior (`tables/before.toml`). The
bound was set then, before the search trained deep tails. Those values are of one core of one machine: compare them with
runs on such a core only. They are of up to 450 trials on rung 0; plans that were tried on rung -1 alone do not count.

With `--keep`, runs that ended are not run again, and `tuner prior build` of them all makes a prior of twenty tasks.
"""

import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tuner
from benchmarks.alternatives.ours import may_forget
from benchmarks.alternatives.problem import Problem
from benchmarks.alternatives.tasks import ORDINARY
from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.search.prior import DONE, digits, half, person
from tuner.commands.tune.session import NO_RUN
from tuner.results.prior.file import write_prior
from tuner.results.records.trial import eligible
from tuner.results.run import Run
from tuner.results.scores.pareto import area
from tuner.task import Task
from tuner_priors.portfolio import build_prior

#: More people, and more users of digits, who know other ones and have other numbers of samples of each new one.
PEOPLE = ("female0", "female1", "male0", "male1", "male2", "male10")
DIGITS = {"digits-2": (2, 40), "digits-4": (4, 20), "digits-6": (6, 60), "digits-7": (7, 30)}
#: Seconds without a prior, and with one; of the quick run too, with its tasks.
SECONDS = (120, 60)
QUICK, QUICK_SECONDS = ("digits", "digits-7", "emg"), (40, 20)
LOCAL = "local_accuracy"
#: Hypervolume by task and rung; see the module's docstring.
BEFORE = Path(__file__).parent / "tables" / "before.toml"
#: Columns: whether a run with a prior is at least as good as today's search without one, and as the older search.
LEVEL, LEVEL_BEFORE = "not behind", "not behind before"
#: Stands for no rung at all.
LOWEST = 99
#: Share of the tasks on which a run with a prior must not be behind.
ENOUGH = 15 / 20


def _of(problem: Callable[[int], Problem]) -> tuple[Task, str | None]:
    found = problem(0)
    return found.task, None if found.adds_classes else may_forget(found)


def _alone(task: Callable[[], Task]) -> tuple[Task, str | None]:
    return task(), None


#: Each task, and what its user lets the model forget.
TASKS: Mapping[str, Callable[[], tuple[Task, str | None]]] = {
    **{name: partial(_of, problem) for name, problem in ORDINARY.items()},
    **{f"emg-{name}": partial(_alone, partial(person, name)) for name in PEOPLE},
    **{name: partial(_alone, partial(digits, *numbers)) for name, numbers in DIGITS.items()},
    **{f"clothing-{which}": partial(_alone, partial(half, which)) for which in (0, 1)},
}


def tuned(name: str, out: Path, seed: int, **options: Any) -> Run:
    """Tune a task in an empty store, or return the run that the folder has, if it ended."""
    if not (out / DONE).exists():
        shutil.rmtree(out, ignore_errors=True)
        task, forget = TASKS[name]()
        with tempfile.TemporaryDirectory() as store:
            tuner.run(task, seed=seed, out=out, store=store, progress=False, forget_at_most=forget, **options)
        (out / DONE).touch()
        print(f"{out.name}: {len(Run.open(out).records)} trials", file=sys.stderr, flush=True)
    return Run.open(out)


def without_prior(name: str, seconds: int, folder: Path) -> Run:
    """Return the run of a task without a prior."""
    tuned(name, folder / f"{name}-opened", 0, trials=1, time=f"{seconds}s", earlier=NO_RUN)
    return tuned(name, folder / f"{name}-{seconds}", 0, time=f"{seconds}s", earlier=NO_RUN)


def data_of(name: str) -> str:
    """Return what a task's samples are of."""
    return name.partition("-")[0]


def reached(run: Run) -> int:
    """Return the highest rung that a run has reached: 0 scores all validation samples, and -1 cross-validates."""
    return min((record.rung for record in run.records if eligible(record)), default=LOWEST)


def volume(run: Run, rung: int) -> float:
    """Return the hypervolume of a run's trials on a rung; their best local accuracy where the model may forget all."""
    found = [record.values for record in run.records if eligible(record) and record.rung == rung]
    may_forget_all = run.info.config.limits.forgetting == 1.0
    return area({LOCAL: values[LOCAL]} if may_forget_all else values for values in found)


def volumes(run: Run) -> Mapping[int, float]:
    """Return a run's hypervolume on each rung."""
    return {rung: volume(run, rung) for rung in {record.rung for record in run.records if eligible(record)}}


def beside(found: Run, others: Mapping[int, float]) -> tuple[int, float, float, str]:
    """Compare a run with another one's hypervolume on each rung, on the highest rung that both have reached.

    Returns that rung, the hypervolume of the other and of the run, and whether the run is not behind: yes or no.
    """
    highest = min(others, default=LOWEST)
    rung = max(highest, reached(found))
    then, now = others.get(rung, 0.0), volume(found, rung)
    return rung, then, now, "yes" if now >= then and reached(found) <= max(0, highest) else "no"


def compared(names: Sequence[str], seconds: tuple[int, int], folder: Path, *, apart: bool) -> list[Row]:
    """Return a row for each task."""
    without = {name: without_prior(name, seconds[0], folder) for name in names}
    rows, ending = list[Row](), "apart" if apart else "prior"
    tables = tomllib.loads(BEFORE.read_text(encoding="utf-8")) if seconds == SECONDS else {}
    for name in names:
        others = [other for other in names if (data_of(other) != data_of(name) if apart else other != name)]
        file = folder / f"{name}-{ending}.toml"
        write_prior(file, build_prior([str(without[other].folder) for other in others], print))
        found = tuned(name, folder / f"{name}-{seconds[1]}-{ending}", 1, time=f"{seconds[1]}s", prior=file)
        rung, then, now, level = beside(found, volumes(without[name]))
        tried = sum(record.prior is not None for record in found.records)
        row = {"task": name, f"without, {seconds[0]} s": then, f"with, {seconds[1]} s": now, "difference": now - then,
               "on rung": rung, "plans of the prior": tried, LEVEL: level}  # fmt: skip
        if name in tables:
            rung, then, now, level = beside(found, {int(one): value for one, value in tables[name].items()})
            row |= {"before": then, "with, same rung": now, "rung of before": rung, LEVEL_BEFORE: level}
        rows.append(row)
    return rows


def claims(rows: Sequence[Row], seconds: tuple[int, int]) -> list[Claim]:
    """Judge what was measured."""
    than = {LEVEL: "today's search without one", LEVEL_BEFORE: "the search of 2026-11-25"}
    counts = {key: [row[key] for row in rows if key in row] for key in than}
    return [
        Claim(f"with a prior of the other tasks, the hypervolume after {seconds[1]} s is at least that of {than[key]} "
              f"after {seconds[0]} s on {ENOUGH:.0%} of the tasks", "project's bound, 15 of 20",
              f"on {found.count('yes')} of {len(found)}", found.count("yes") >= ENOUGH * len(found))
        for key, found in counts.items() if found
    ]  # fmt: skip


def main() -> None:
    """Measure, print, judge."""
    quick = f"{', '.join(QUICK)}, {QUICK_SECONDS[0]} and {QUICK_SECONDS[1]} s: some 5 minutes"
    parser = benchmark_parser(__doc__, quick)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seconds", nargs=2, type=int, default=SECONDS, help="without a prior, and with one")
    parser.add_argument("--apart", action="store_true", help="leave out all tasks of a task's data with it")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of what has been measured")
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA))
    names, seconds = (QUICK, QUICK_SECONDS) if asked.quick else (asked.tasks, (asked.seconds[0], asked.seconds[1]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).absolute()
        os.environ["TUNER_CACHE"] = str(folder / "cache")
        (folder / "cache").mkdir(parents=True, exist_ok=True)
        rows = compared(names, seconds, folder, apart=asked.apart)
    finish("left-out priors", rows, claims(rows, seconds), asked.json)


if __name__ == "__main__":
    main()
