"""What a prior of other tasks brings to one minute: twenty tasks, each left out in turn.

Each task is tuned without a prior for two minutes. Then it is tuned for one minute by another seed, with the prior that
`tuner prior build` makes of the other nineteen runs. Compared is the hypervolume of (local, global) accuracy of both
fronts, on the same validation samples. Every run has an empty store.

With `--keep`, runs that ended are not run again, and `tuner prior build` of them all makes a prior of twenty tasks.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import tuner
from benchmarks.alternatives.ours import may_forget
from benchmarks.alternatives.problem import Problem
from benchmarks.alternatives.tasks import ORDINARY
from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.search.prior import digits, half, person
from tuner.commands.tune.session import NO_RUN
from tuner.results.folder import TRIALS
from tuner.results.prior.file import write_prior
from tuner.results.run import Run
from tuner.results.scores.pareto import area
from tuner.task import Task
from tuner_priors.portfolio import build_prior

#: More people, and more users of digits, who know other ones and have other numbers of samples of each new one.
PEOPLE = ("female0", "female1", "male0", "male1", "male2", "male10")
DIGITS = {"digits-2": (2, 40), "digits-4": (4, 20), "digits-6": (6, 60), "digits-7": (7, 30)}
#: Seconds without a prior, and with one; of the quick run too, with its tasks.
WITHOUT, WITH = 120, 60
QUICK, QUICK_WITHOUT, QUICK_WITH = ("digits", "digits-7", "emg"), 24, 12
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


def tuned(name: str, folder: Path, seconds: int, seed: int, prior: Path | None = None) -> Run:
    """Tune a task in an empty store, or return the run that the folder has."""
    out = folder / f"{name}-{seconds}{'-prior' if prior else ''}"
    if not (out / TRIALS).exists():
        task, forget = TASKS[name]()
        with tempfile.TemporaryDirectory() as store:
            tuner.run(
                task, time=f"{seconds}s", seed=seed, out=out, store=store, progress=False, forget_at_most=forget,
                **({"earlier": NO_RUN} if prior is None else {"prior": prior}),
            )  # fmt: skip
    return Run.open(out)


def volume(run: Run) -> float:
    """Return the hypervolume of a run's front."""
    return area(run.record(trial).values for trial in run.front)


def compared(names: Sequence[str], seconds: tuple[int, int], folder: Path) -> list[Row]:
    """Return a row for each task."""
    without = {name: tuned(name, folder, seconds[0], 0) for name in names}
    rows = list[Row]()
    for name in names:
        file = folder / f"without-{name}.toml"
        write_prior(file, build_prior([str(run.folder) for other, run in without.items() if other != name], print))
        found = tuned(name, folder, seconds[1], 1, file)
        then, now = volume(without[name]), volume(found)
        tried = sum(record.prior is not None for record in found.records)
        rows.append({"task": name, f"without, {seconds[0]} s": then, f"with, {seconds[1]} s": now,
                     "difference": now - then, "plans of the prior": tried})  # fmt: skip
    return rows


def main() -> None:
    """Measure, print, judge."""
    parser = benchmark_parser(__doc__, f"{', '.join(QUICK)}, {QUICK_WITHOUT} and {QUICK_WITH} s: some 2 minutes")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of what has been measured")
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA))
    names, seconds = (QUICK, (QUICK_WITHOUT, QUICK_WITH)) if asked.quick else (asked.tasks, (WITHOUT, WITH))
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).absolute()
        os.environ["TUNER_CACHE"] = str(folder / "cache")
        (folder / "cache").mkdir(parents=True, exist_ok=True)
        rows = compared(names, seconds, folder)
    level = [str(row["task"]) for row in rows if float(str(row["difference"])) >= 0]
    claim = Claim(
        f"with a prior of the other tasks, the hypervolume after {seconds[1]} s is at least that without one after "
        f"{seconds[0]} s on {ENOUGH:.0%} of the tasks", "project's bound, 15 of 20",
        f"on {len(level)} of {len(rows)}", len(level) >= ENOUGH * len(rows))  # fmt: skip
    finish("left-out priors", rows, [claim], asked.json)


if __name__ == "__main__":
    main()
