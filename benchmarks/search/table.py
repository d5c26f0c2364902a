"""Which sampler and which scheduler of trials find a good front soonest: replayed on recorded tables.

A table holds every plan of a grid, really trained on every rung. A replay asks, looks the scores up, and lets the clock
go on by the recorded seconds; what an arm draws is rounded to the grid. Arms:

- ours, with each sampler: the search of `tuner.run` with its rungs; with `tpe`, of TPE's suggestions, random plans and
  variations of the front, the one with the best expected gain per second;
- TPE, GP, NSGA-II (20 trials a generation), random: Optuna's samplers, every trial on the top rung;
- MO-ASHA: asynchronous successive halving on the top two rungs, its plans by Optuna's random and TPE samplers.

All arms begin with the same first plans, optimise local and global accuracy, and pay nothing for a plan tried before,
nor for asking: `ms a plan` says what that takes. Features are stored: what filling them costs is left out, which is
what rungs save at first. Where trials are short, ours has no lower rung then. Regret is the hypervolume of (local,
global) accuracy that is missing to that of the table's own front, relative to it; only scores of the top rung count.
"""

import multiprocessing
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import mean

import optuna
from optuna.samplers import BaseSampler

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.search.record import TABLES, TASKS, write
from benchmarks.search.replay import Table, ours, plain
from tuner.search.space import SAMPLERS

SHARES = (0.05, 0.10, 0.25, 0.50, 1.0)
PLAIN: Mapping[str, Callable[[int], BaseSampler]] = {
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "GP": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "NSGA-II": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}
ASHA = {f"MO-ASHA, {name}": PLAIN[name] for name in ("random", "TPE")}
OURS = {f"ours, {name}": name for name in SAMPLERS}
ARMS = (*OURS, *PLAIN, *ASHA)
#: Optuna's GP takes a fifth of a second for a plan: a quarter of a minute for a replay.
SLOW, SLOW_SEEDS = ("ours, gp", "GP"), 8
#: The arm that is judged: the default of `sampler =`.
DEFAULT = "ours, tpe"
#: Regret by which the default sampler may be above another arm.
WORSE = 0.005


@cache
def table_of(name: str) -> Table:
    """Return a table; each process reads it once."""
    return Table(name)


def replayed(job: tuple[str, str, int]) -> tuple[list[float], float]:
    """Replay a task, an arm and a seed; return the regrets, and the milliseconds to ask for one plan."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    task, arm, seed = job
    table = table_of(task)
    if arm in OURS:
        replay = ours(table, OURS[arm], seed)
    else:
        replay = plain(table, {**PLAIN, **ASHA}[arm], seed, halving=arm in ASHA)
    return [replay.regret(share) for share in SHARES], 1e3 * replay.asking / len(replay.records)


def main() -> None:
    """Replay, print, judge."""
    parser = benchmark_parser(__doc__, "3 seeds, without Optuna's GP: at most 2 minutes")
    known = sorted(path.name.partition(".")[0] for path in TABLES.glob("*.json.gz"))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--tasks", nargs="*", default=known, choices=known)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    parser.add_argument("--record", choices=TASKS, help="train all plans of this table anew: up to half an hour")
    asked = parser.parse_args()
    if asked.record:
        write(asked.record)
        return
    seeds = 3 if asked.quick else asked.seeds
    arms = [arm for arm in asked.arms if not (asked.quick and arm in SLOW)]
    counts = {arm: min(seeds, SLOW_SEEDS) if arm in SLOW else seeds for arm in arms}
    jobs = [(task, arm, seed) for task in asked.tasks for arm in arms for seed in range(counts[arm])]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a replay for each core
    with multiprocessing.get_context("spawn").Pool() as pool:
        results = dict(zip(jobs, pool.imap(replayed, jobs), strict=True))
    rows: list[Row] = []
    for task in asked.tasks:
        for arm in arms:
            own = [results[task, arm, seed] for seed in range(counts[arm])]
            shares = {
                f"{share:.0%}": "{:.4f} ± {:.4f}".format(*interval([regrets[place] for regrets, _ in own]))
                for place, share in enumerate(SHARES)
            }
            rows.append(
                {"task": task, "arm": arm, "seeds": counts[arm], **shares, "ms a plan": mean(one for _, one in own)}
            )
    regrets = {job: found for job, (found, _) in results.items()}
    finish("search_table", rows, claims(regrets, asked.tasks, counts) if DEFAULT in arms else [], asked.json)


def claims(
    regrets: Mapping[tuple[str, str, int], Sequence[float]], tasks: Sequence[str], counts: Mapping[str, int]
) -> list[Claim]:
    """Hold the default sampler's regret against every other arm's, paired by seed; `counts` are each arm's seeds."""
    found = []
    for share in (0.10, 0.25):
        place, better, worse = SHARES.index(share), list[str](), list[str]()
        for task in tasks:
            differences = {}
            for arm, count in counts.items():
                pairs = [(regrets[task, arm, seed], regrets[task, DEFAULT, seed]) for seed in range(count)]
                if arm not in OURS:
                    differences[arm] = interval([theirs[place] - mine[place] for theirs, mine in pairs])
            if all(middle - half > 0 for middle, half in differences.values()):
                better.append(task)
            worse += [f"{task}: {arm}" for arm, (middle, half) in differences.items() if middle - half < -WORSE]
        text = (
            f"regret at {share:.0%} below that of every arm of Optuna's on two of three tasks, and certainly at most "
            f"{WORSE} above it on all"
        )
        said = f"below on {', '.join(better) or 'none'}; may be more than {WORSE} above {', '.join(worse) or 'none'}"
        met = len(better) >= min(2, len(tasks)) and not worse
        why = "" if met else f"intervals of {min(counts.values())} seeds and more"
        found.append(Claim(text, "project's bound; 95 % intervals of paired differences", said, met, why))
    return found


if __name__ == "__main__":
    main()
