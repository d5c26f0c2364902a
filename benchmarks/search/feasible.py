"""A limit that half of the search space breaks: what it costs to find that out, for us and for plain Optuna.

40 trials on each task, under `--memory` and `--train-time` that half of 256 random plans are expected to break. Arms,
each over our store and our trainers, under the same guard, every trial at full fidelity:

- ours: `tuner.run`, which refuses what is expected not to fit;
- Optuna, FAIL: its TPE; a trial that broke a limit, or was killed for one, is reported as failed;
- Optuna, constraint: its TPE; such a trial reports by how much it broke each limit.

Tasks: digits, EMG (muscle signals), and clothing (MobileNetV2 at 160 px on a few photos, any depth). Counted: trials
over a limit, seconds lost to them, plans refused, the hypervolume of (local, global) accuracy of the trials within the
limits, and how far our estimates were off: before any trial, and once ten trials have corrected them. A peak that only
filling the store reaches is the same before and after, and is left out.
"""

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.lib.places import DATA
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.search.feasible_arms import Composer, Problem, Spent, limits, ours, plain, space_of, task_from, task_of
from tuner.plugin.core import build_host
from tuner.plugin.sources import random_values
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.results.scores.pareto import area
from tuner.results.views.estimates import estimate_errors
from tuner.search.estimate.rates import rates_of
from tuner.search.processes.remote import open_remote

OURS, FAIL, CONSTRAINT = ARMS = ("ours", "Optuna, FAIL", "Optuna, constraint")
TASKS = ("digits", "EMG", "clothing")
TRIALS, QUICK_TRIALS, LEARNED_AFTER, DRAWN = 40, 14, 10, 256
OVER_SHARE, BYTES_OFF, SECONDS_OFF, WITHIN, BEHIND = 0.03, 0.08, 0.20, 1.3, 0.01


def carried_out(name: str, arms: Sequence[str], trials: int, seeds: int) -> Iterator[tuple[str, int, Spent, Problem]]:
    """Yield what each arm did on a task, seed by seed."""
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as root:
        os.environ["TUNER_CACHE"] = root
        task, space = task_of(name), space_of(name, Path(root))
        with open_remote(build_host(), task, ["torch"], many_jobs=True) as opened:
            session = opened["torch"]
            draw, rates = random_values(random.Random(0)), rates_of(session, "torch", measure=True)
            composed = Composer(space, task_from(task), session)
            memory, seconds = limits([composed(draw).plan for _ in range(DRAWN)], rates)
        problem = Problem(task, space, memory, seconds, trials)
        for seed in range(seeds):
            for arm in arms:
                folder = Path(root) / f"{arm} {seed}"
                folder.mkdir()
                spent = (
                    ours(problem, seed, folder)
                    if arm == OURS
                    else plain(problem, seed, folder, constrained=arm == CONSTRAINT)
                )
                yield arm, seed, spent, problem


def row(name: str, arm: str, spent: Spent, problem: Problem) -> Row:
    """Return what an arm did, for people."""
    return {
        "task": name,
        "MB allowed": problem.memory / 1e6,
        "s allowed": problem.seconds,
        "arm": arm,
        "trials": problem.trials,
        "over memory": spent.memory,
        "over time": spent.time,
        "s lost": spent.lost,
        "refused": spent.refused,
        "hypervolume": area(spent.within),
    }


def errors(name: str, records: Sequence[TrialRecord]) -> Iterator[Row]:
    """Yield how far our estimates were off."""
    seen = [one for one in records if one.state in SCORED and one.same_as is None and one.uncalibrated is not None]
    own = {
        "peak_bytes": [one for one in seen if one.uncalibrated.peak_bytes != one.values["peak_bytes"]],  # type: ignore[union-attr]  # of those that have it
        "train_seconds": seen,
    }
    for cost_name, trials in own.items():
        ratios = [getattr(one.uncalibrated, cost_name) / one.values[cost_name] for one in trials]
        late = estimate_errors(trials[LEARNED_AFTER:]).get(cost_name)
        if late is not None:
            yield {
                "estimates": name,
                "of": cost_name,
                "before: off by": late.plain_median,
                "before: within 1.3x": mean(1 / WITHIN <= ratio <= WITHIN for ratio in ratios),
                "after ten: trials": late.trials,
                "after ten: off by": late.median,
                "nine in ten": late.nine_in_ten,
            }


def claims(spent: Mapping[str, Mapping[str, Sequence[Spent]]], off: Sequence[Row], trials: int) -> list[Claim]:
    """Compare the figures with the bounds."""
    found = list[Claim]()

    def claim(text: str, said: str, *, met: bool) -> None:
        found.append(Claim(text, "project's bound", said, met))

    def total(arm: str, what: Callable[[Spent], float]) -> float:
        return sum(what(one) for by_arm in spent.values() for one in by_arm.get(arm, ()))

    def paired(arm: str, what: Callable[[Spent], float]) -> list[float]:
        """Return how much more ours has, by task and seed."""
        pairs = [(by_arm.get(OURS, ()), by_arm.get(arm, ())) for by_arm in spent.values()]
        return [what(one) - what(other) for ours, theirs in pairs for one, other in zip(ours, theirs, strict=True)]

    runs = sum(len(by_arm.get(OURS, ())) for by_arm in spent.values())
    share = total(OURS, lambda one: one.memory) / max(1, runs * trials)
    claim(f"trials over the memory limit ≤ {OVER_SHARE:.0%}", f"{share:.1%}", met=share <= OVER_SHARE)
    for name, bound in (("peak_bytes", BYTES_OFF), ("train_seconds", SECONDS_OFF)):
        medians = {str(one["estimates"]): one["after ten: off by"] for one in off if one["of"] == name}
        said = ", ".join(f"{task} {value:.1%}" for task, value in medians.items())
        met = bool(medians) and all(isinstance(value, float) and value <= bound for value in medians.values())
        claim(f"{name}: median error after ten trials ≤ {bound:.0%} on every task", said, met=met)
    for other in (FAIL, CONSTRAINT):
        if total(other, lambda _: 1.0):
            behind, half = interval(paired(other, lambda one: -area(one.within)))
            said = f"{-behind:+.3f} ± {half:.3f} (95 %, paired by task and seed)"
            claim(f"hypervolume at most {BEHIND} below that of {other}", said, met=behind + half <= BEHIND)
            more, half = interval(paired(other, lambda one: one.lost))
            said = f"{more:+.0f} ± {half:.0f} s (95 %, paired by task and seed)"
            claim(f"no more time lost than by {other}", said, met=more + half <= 0)
    return found


def main() -> None:
    """Run, print, write."""
    parser = benchmark_parser(__doc__, f"digits, {QUICK_TRIALS} trials: about a minute")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA))
    tasks, trials = (["digits"], QUICK_TRIALS) if asked.quick else (asked.tasks, asked.trials)
    rows, off, spent = list[Row](), list[Row](), dict[str, dict[str, list[Spent]]]()
    for name in tasks:
        for arm, _, one, problem in carried_out(name, asked.arms, trials, asked.seeds):
            spent.setdefault(name, {}).setdefault(arm, []).append(one)
            rows.append(row(name, arm, one, problem))
            off += errors(name, one.records)
    finish("feasible", [*rows, *off], claims(spent, off, trials), asked.json)


if __name__ == "__main__":
    main()
