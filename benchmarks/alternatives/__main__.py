"""What `tuner run` finds, next to the best simple things that a user would do instead, on test samples nobody saw.

Every arm has the same model, the same samples of the user, the same seconds and the same cores, and runs in a process
of its own. `tuner run` divides the user's samples into training and validation; its export then learns all of them, as
plain arms do. The seconds of that refit are beyond those of the arm, and in its note. Tasks are in
`benchmarks.alternatives.tasks`; arms in `ours`, `arms` (heads on frozen features), `trained` (a stored tail, LP-FT,
fastai's recipe) and `plain` (Optuna over a plain loop), each with what it does. Rates of plain arms are chosen on
`local.val`, with global validation samples where old classes count; then all samples are trained on.

Where the user's classes come beside old ones (clothing, digits), local and global accuracy count alike, trained arms
have global samples too, and heads on the user's classes alone answer no old ones. Else local accuracy counts, and
global accuracy is shown. An arm is compared with the simple arm that is the best on the test itself, which favours that
arm. A seed changes which of the user's samples are for validation, which of the data are hers, the order, and the
search. Intervals are paired and hold for other test samples and other seeds; a claim holds at the unfavourable end.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.alternatives.claims import Measured, Result, claims_of, markdown, rows_of
from benchmarks.alternatives.problem import Problem
from benchmarks.alternatives.tasks import TASKS
from benchmarks.lib.places import DATA
from benchmarks.lib.report import Row, benchmark_parser, finish

RESULTS = TypeAdapter(list[Result])
#: Groups of arms that take as long as they take.
GROUPS = ("heads",)
#: Groups of arms that are run for each number of seconds.
TIMED_GROUPS = ("stored-tail", "lp-ft", "fastai", "optuna", "ours")
#: Tasks of the quick run: the seconds of each, and the groups of arms.
QUICK: Mapping[str, tuple[int, Sequence[str]]] = {
    "sign": (60, ("heads", "stored-tail", "lp-ft", "optuna", "ours")),
    "digits": (15, ("heads", "stored-tail", "lp-ft", "ours")),
    "emg": (20, ("heads", "ours")),
    "rare-sign": (20, ("ours",)),
    "unknown-sign": (20, ("ours",)),
}


def measured(problem: Problem, seed: int, group: str, seconds: int) -> list[Result]:
    """Run a group of arms in this process."""
    from benchmarks.alternatives import arms, ours, plain, trained

    if group == "heads":
        return arms.heads(problem, seed)
    if group in ("stored-tail", "lp-ft"):
        return trained.stored_tail(problem, seed, seconds, probed=group == "lp-ft")
    if group == "optuna":
        return plain.optuna_loop(problem, seed, seconds)
    if group == "fastai":
        return trained.fastai_recipe(problem, seed, seconds)
    return ours.searched(problem, seed, seconds)


def one(task: str, seed: int, group: str, seconds: int) -> None:
    """Run a group of arms, and print the results as JSON."""
    problem = TASKS[task](seed)
    if problem.task.model.pretrain is not None:  # the given model is trained: that is at no cost for all arms
        from tuner.backends.torch.model.open.load import load

        load(problem.task)
    print(RESULTS.dump_json(measured(problem, seed, group, seconds)).decode())


def in_process(task: str, seed: int, group: str, seconds: int, pretrained: Path) -> list[Result]:
    """Run a group of arms in a new process with an empty cache, but for pretrained weights; none where it fails.

    Args:
        task: Name of the task.
        seed: Seed.
        group: Name of the group.
        seconds: Seconds allowed.
        pretrained: Folder where pretrained weights stay.
    """
    with tempfile.TemporaryDirectory() as cache:
        if pretrained.exists():
            shutil.copytree(pretrained, Path(cache) / "pretrained")
        environment = {**os.environ, "TUNER_CACHE": cache, "TUNER_DATA": str(DATA.resolve())}
        command = [sys.executable, "-m", "benchmarks.alternatives", "--one", task, str(seed), group, str(seconds)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{task}, seed {seed}, {group}: failed: {last}", file=sys.stderr)
            return []
        if (Path(cache) / "pretrained").exists():
            shutil.copytree(Path(cache) / "pretrained", pretrained, dirs_exist_ok=True)
    return RESULTS.validate_json(done.stdout.strip().splitlines()[-1])


def kept(task: str, seed: int, group: str, seconds: int, folder: Path) -> list[Result]:
    """Return the results of a group of arms: those of the folder, or what is measured now, which the folder gets."""
    name = f"{group}-{seconds}" if group in TIMED_GROUPS else group
    path = folder / f"{task}-{seed}-{name}.json"
    if path.exists():
        return RESULTS.validate_json(path.read_bytes())
    results = in_process(task, seed, group, seconds, folder / "pretrained")
    if results:
        part = path.with_suffix(".part")
        part.write_bytes(RESULTS.dump_json(results))
        part.replace(path)
    for result in results:
        local = 100 * sum(result.local) / len(result.local)
        known = "" if result.known is None else f" / {100 * sum(result.known) / len(result.known):.1f}"
        print(f"{task}, seed {seed}, {result.arm}: {local:.1f}{known} %, {result.seconds:.0f} s {result.note}",
              file=sys.stderr)  # fmt: skip
    return results


def task_results(task: str, seeds: int, groups: Sequence[str], seconds: Sequence[int], folder: Path) -> Measured:
    """Return the results of a task, by arm; arms that failed with a seed are left out."""
    found = dict[str, list[Result]]()
    jobs = [(group, limit) for group in groups for limit in (seconds if group in TIMED_GROUPS else seconds[-1:])]
    for seed in range(seeds):
        for group, limit in jobs:
            for result in kept(task, seed, group, limit, folder):
                found.setdefault(result.arm, []).append(result)
    complete = {arm: results for arm, results in found.items() if len(results) == seeds}
    problem = TASKS[task](0)
    rare = () if problem.rare is None else tuple(bool(label == problem.rare) for label in problem.test.labels)
    return Measured(task, problem.adds_classes, complete, rare)


def asked_of(task: str, groups: Sequence[str], *, quick: bool) -> list[str]:
    """Return the groups of arms that a task is for; of unknown classes, only ours has a score."""
    own = QUICK[task][1] if quick else ("ours",) if task.startswith("unknown-") else groups
    return [group for group in groups if group in own]


def main() -> None:
    """Measure, print, judge."""
    quick = "; ".join(f"{name}, {limit} s: {', '.join(groups)}" for name, (limit, groups) in QUICK.items())
    parser = benchmark_parser(__doc__, f"one seed of {quick}; about ten minutes on two quiet cores")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=int, nargs="+", default=[60, 300], help="seconds that ours is given")
    parser.add_argument("--arms", nargs="+", choices=[*GROUPS, *TIMED_GROUPS], default=[*GROUPS, *TIMED_GROUPS])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder of what has been measured")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        task, seed, group, limit = asked.one
        one(task, int(seed), group, int(limit))
        return
    names = [name for name in QUICK if name in asked.tasks] if asked.quick else asked.tasks
    seconds = {name: [QUICK[name][0]] if asked.quick else sorted(asked.seconds) for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        seeds = 1 if asked.quick else asked.seeds
        tasks = [task_results(name, seeds, asked_of(name, asked.arms, quick=asked.quick), seconds[name], folder)
                 for name in names]  # fmt: skip
    rows: list[Row] = [row for task in tasks for row in rows_of(task, max(seconds[task.name]))]
    tables = [markdown(rows_of(task, max(seconds[task.name]))) for task in tasks]
    print("\n\n".join(tables), end="\n\n")
    finish("alternatives", rows, claims_of(tasks, seconds) if "ours" in asked.arms else [], asked.json)


if __name__ == "__main__":
    main()
