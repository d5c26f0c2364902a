"""What `tuner run` finds, next to the best simple things that a user would do instead, on test samples nobody saw.

`python -m benchmarks.alternatives [--quick] [--tasks NAME ...] [--seeds N] [--seconds 60 300] [--arms NAME ...]
[--keep FOLDER] [--json FILE]`

Every arm has the same model, the same samples of the user, the same seconds and the same cores, and runs in a process
of its own. `tuner run` divides the user's samples into training and validation; its export then learns all of them, as
plain arms do. The seconds of that refit are beyond those of the arm, and in its note.

Tasks: photos of sign digits, of 25 objects (Caltech) and of clothing, small images (CIFAR-10 at 96 pixels), all with
MobileNetV2; handwritten digits; sounds (ESC-10, the fifth fold is the test) and one speaker's digits with YAMNet;
one person's muscle signals. There is no accelerometer data at hand, so no such task.

Arms:

- ours, at each number of seconds: `tuner.run` in an empty store; the default pick, and the best local one;
- on frozen features: logistic regression (C by folds), ridge (λ by leave-one-out), linear discriminant analysis,
  RanPAC (ridge on random projections), a dense layer trained for 50 epochs;
- fastai's recipe, at each number of seconds: head and norms for an epoch, then all layers, augmented, one-cycle;
- stored tail: features stored once after half of the FLOPs, the rest trained by AdamW, 3e-4 constant, 8 epochs, label
  smoothing 0.1, statistics of norms frozen; its own head, and one solved again in closed form on what it has learned.
  Where old classes are to be kept, it is also run at 1e-4, which forgets less.

Where the user's classes come beside old ones (clothing, digits), local and global accuracy count alike, and only arms
that answer all classes are compared; the stored tail is trained on 2,000 global samples too, and its head is solved
again as `tuner.ridge.union` does. Else local accuracy counts. An arm is compared with the simple arm that is the best
on the test itself, which favours that arm. Seconds are wall time from the loaded task to a model that answers.

A seed changes which of the user's samples are for validation, which of the data are hers, the order, and the search.
Intervals are paired and hold for other test samples and other seeds; a claim holds at the unfavourable end.
`--keep FOLDER` keeps what has been measured, so that a run that was interrupted continues; delete it if code changes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.alternatives.claims import Measured, Result, claims_of, markdown, rows_of
from benchmarks.alternatives.problem import Problem
from benchmarks.alternatives.tasks import TASKS
from benchmarks.lib.places import DATA
from benchmarks.lib.report import Row, benchmark_parser, finish

#: Groups of arms that take as long as they take.
GROUPS = ("heads", "stored-tail")
#: Groups of arms that are run for each number of seconds.
TIMED_GROUPS = ("fastai", "ours")
#: Tasks of the quick run, and the seconds of each.
QUICK: Mapping[str, Sequence[int]] = {"sign": (60,), "digits": (30,), "emg": (60,)}


def measured(problem: Problem, seed: int, group: str, seconds: int) -> list[Result]:
    """Run a group of arms in this process."""
    from benchmarks.alternatives import arms, ours, trained

    if group == "heads":
        return arms.heads(problem, seed)
    if group == "stored-tail":
        return trained.stored_tail(problem, seed)
    if group == "fastai":
        return trained.fastai_recipe(problem, seed, seconds)
    return ours.searched(problem, seed, seconds)


def prepare(problem: Problem) -> None:
    """Train the given model on the global data, where the task asks for it: it is given to all arms, at no cost."""
    from tuner.backends.torch.model.open.load import load

    load(problem.task)


def one(task: str, seed: int, group: str, seconds: int) -> None:
    """Run a group of arms, and print the results as JSON."""
    problem = TASKS[task](seed)
    if problem.task.model.pretrain is not None:
        prepare(problem)
    print(json.dumps([asdict(result) for result in measured(problem, seed, group, seconds)]))


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
    return results_from(done.stdout.strip().splitlines()[-1])


def results_from(text: str) -> list[Result]:
    """Return results from JSON."""
    return [
        Result(
            found["arm"], found["seconds"], tuple(found["local"]),
            None if found["known"] is None else tuple(found["known"]), found["note"],
        )
        for found in json.loads(text)
    ]  # fmt: skip


def kept(task: str, seed: int, group: str, seconds: int, folder: Path) -> list[Result]:
    """Return the results of a group of arms: those of the folder, or what is measured now, which the folder gets."""
    name = f"{group}-{seconds}" if group in TIMED_GROUPS else group
    path = folder / f"{task}-{seed}-{name}.json"
    if path.exists():
        return results_from(path.read_text(encoding="utf-8"))
    results = in_process(task, seed, group, seconds, folder / "pretrained")
    if results:
        part = path.with_suffix(".part")
        part.write_text(json.dumps([asdict(result) for result in results]), encoding="utf-8")
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
    return Measured(task, TASKS[task](0).adds_classes, complete)


def main() -> None:
    """Measure, print, judge."""
    parser = benchmark_parser(__doc__, "three tasks, one seed, 30 or 60 s: about ten minutes")
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
    seconds = {name: QUICK[name] if asked.quick else sorted(asked.seconds) for name in names}
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        seeds = 1 if asked.quick else asked.seeds
        tasks = [task_results(name, seeds, asked.arms, seconds[name], folder) for name in names]
    rows: list[Row] = [row for task in tasks for row in rows_of(task, max(seconds[task.name]))]
    tables = [markdown(rows_of(task, max(seconds[task.name]))) for task in tasks]
    print("\n\n".join(tables), end="\n\n")
    finish("alternatives", rows, claims_of(tasks, seconds) if "ours" in asked.arms else [], asked.json)


if __name__ == "__main__":
    main()
