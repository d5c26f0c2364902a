"""What a prior of other tasks brings to a short search: leave one task out, six times.

Tasks: handwritten digits (two users, who write other digits and have 60 and 30 samples of each), muscle signals of two
people, and two halves of the classes of clothing photos (240 photos each, MobileNetV2 at 96 px). Each task is tuned
once without a prior, 30 trials of the space `board-10min`, every trial at full fidelity. As `tuner prior build` does, a
prior is made of the runs of the other five; then the task is tuned with it and without, with the same seeds, none of
them that of the first run.

Runs are deterministic (`--deterministic`): costs follow from FLOPs and sizes, so that a busy machine changes nothing.
The budget is what the 30 trials of the task's first run cost by this measure, each 0.3 s more for its start; features
are stored: what filling them costs is left out. Compared is the hypervolume of (local, global) accuracy of all trials
that end within 10 % of it; a trial that ends later does not count. With `--keep`, runs that ended are not run again.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from statistics import mean

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.lib.places import DATA, EXAMPLES
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import Held, clothing, first_of_each, known_of, opened_from
from tuner.arrays import RowNumbers
from tuner.commands.tune.session import NO_RUN, Tuning
from tuner.commands.tune.setup import RunSetup
from tuner.planner.device import nominal
from tuner.planner.price import price
from tuner.plugin.core import build_host
from tuner.results.prior.file import Prior, read_prior, write_prior
from tuner.results.records.config import Budget, RunConfig, RunRequest
from tuner.results.records.trial import TrialRecord, eligible
from tuner.results.run import Run
from tuner.results.scores.pareto import area
from tuner.search.listener import Listener
from tuner.search.processes.guard import Interrupt
from tuner.search.processes.remote import RemoteSession, open_remote
from tuner.search.setting import objectives_for
from tuner.search.space import load_space
from tuner.search.trials.access import StudyAccess
from tuner.task import Domain, InputSpec, ModelSpec, Samples, Subset, Task
from tuner.task.data.samples import ArraySamples
from tuner.task.partition import stratified_holdout
from tuner.task.spec import Pretrain
from tuner_priors.portfolio import portfolio

SPEC = InputSpec(kind="arrays")
#: Digits that a model knows; the others are the user's.
KNOWN = 7
#: Photos of a half to train on, and the side of a photo in pixels; photos per class that the model knows, and of those
#: to score on.
PHOTOS, SIZE, OLD_PER_CLASS, OLD_SCORED = 240, 96, 2, 300
TRIALS, SHARE, SEEDS, QUICK = 30, 0.10, 5, ("digits 7-9", "digits 0-2")
#: Starting a trial takes about so long.
START_SECONDS = 0.3
BETTER, DONE = 5, "done"
WITHOUT, WITH = "without", "with"


def digits(shift: int, per_class: int) -> Task:
    """Return handwritten digits: the user writes three of them, from `shift` on a few places further than 7 to 9."""
    pixels, labels = load_digits(return_X_y=True)
    samples = ArraySamples((pixels.reshape(-1, 1, 8, 8) / 16).astype(np.float32), (labels + shift) % 10, SPEC, "digits")
    rest, test = stratified_holdout(samples.labels, 0.2)
    train, val = (rest[part] for part in stratified_holdout(samples.labels[rest], 0.25))
    new = train[samples.labels[train] >= KNOWN]
    few = np.concatenate([new[samples.labels[new] == one][:per_class] for one in range(KNOWN, 10)])

    def part(indices: RowNumbers, *, local: bool) -> Subset:
        return Subset(samples, indices[(samples.labels[indices] >= KNOWN) == local])

    return Task(
        name=f"digits-{shift}",
        model=ModelSpec("tuner.models.digits:build", pretrain=Pretrain(epochs=12, learning_rate=3e-3)), input=SPEC,
        loss="single-label",
        local=Domain(Subset(samples, np.sort(few)), part(val, local=True), part(test, local=True)),
        global_=Domain(part(train, local=False), part(val, local=False), part(test, local=False)),
        labels=tuple(str((one - shift) % 10) for one in range(10)), head_rows=tuple(range(KNOWN)),
        local_labels=tuple(range(KNOWN, 10)), augment=("shift",),
    )  # fmt: skip


def person(name: str) -> Task:
    """Return one person's muscle signals, on a network that knows the gestures of others."""
    example = EXAMPLES / "emg"
    text = (example / "task.toml").read_text().replace("male13", name)
    text = text.replace("gestures.tsv", str(example / "gestures.tsv"))
    return replace(opened_from(text), name=f"emg-{name}")


def half(which: int) -> Task:
    """Return the clothing task with every other one of the user's classes."""
    task = clothing(SIZE)
    known = known_of(task)
    rows = task.local_labels[which::2]

    def own(samples: Samples, most: int) -> Samples:
        indices = np.flatnonzero(np.isin(samples.labels, rows))
        chosen = np.random.default_rng(which).permutation(indices)[:most]
        return Held(Subset(samples, np.sort(chosen)))

    def old(samples: Samples, per_class: int, most: int) -> Samples:
        chosen = first_of_each(samples.labels, per_class)
        return Held(Subset(samples, np.sort(np.random.default_rng(0).permutation(chosen)[:most])))

    return replace(
        task, name=f"clothing-{which}", local=Domain(own(task.local.train, PHOTOS), own(task.local.val, PHOTOS)),
        global_=Domain(old(known.train, OLD_PER_CLASS, 10**6), old(known.val, OLD_PER_CLASS, OLD_SCORED)),
        local_labels=tuple(rows),
    )  # fmt: skip


TASKS: Mapping[str, Callable[[], Task]] = {
    "digits 7-9": partial(digits, 0, 60),
    "digits 0-2": partial(digits, 7, 30),
    "EMG male13": partial(person, "male13"),
    "EMG female1": partial(person, "female1"),
    "clothing A": partial(half, 0),
    "clothing B": partial(half, 1),
}


class EnoughError(Exception):
    """The part of the budget is spent that is looked at."""


class Until(Listener):
    """Ends a run that has spent a budget."""

    def __init__(self, budget: float) -> None:
        self.left = budget

    def trial(self, record: TrialRecord) -> None:
        """Count what a trial cost."""
        self.left -= work(record)
        if self.left <= 0:
            raise EnoughError


def work(record: TrialRecord) -> float:
    """Return what a trial costs, by FLOPs and sizes, with stored features."""
    if record.plan is None or not record.values or record.same_as is not None:
        return 0.0
    return START_SECONDS + price(record.plan, nominal(record.plan.model)).trial_seconds


def reached(run: Run, budget: float) -> float:
    """Return the hypervolume of the trials that end within a budget."""
    spent, members = 0.0, [run.info.untouched.values]
    for record in run.records:
        spent += work(record)
        if spent <= budget and eligible(record):
            members.append(record.values)
    return area(members)


class Bench:
    """Tunes one task, which is opened when it is needed and then stays open.

    Args:
        name: Of the task.
        keep: Folder of all runs.
        stack: Closes the task.
    """

    def __init__(self, name: str, keep: Path, stack: ExitStack) -> None:
        self._name, self._keep, self._host, self._stack = name, keep, build_host(), stack
        self._folder = keep / name.replace(" ", "-")

    @cached_property
    def _sessions(self) -> Mapping[str, RemoteSession]:
        """The task, opened."""
        return self._stack.enter_context(open_remote(self._host, TASKS[self._name](), ["torch"], many_jobs=True))

    def tune(self, arm: str, seed: int, budget: float, prior: Prior | None = None) -> Run:
        """Run an arm until a budget is spent, or take it from the folder."""
        folder = self._folder / f"{arm}-{seed}"
        if not (folder / DONE).exists():
            started = time.process_time()
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("*.json*"):
                old.unlink()
            (folder / "journal.log").unlink(missing_ok=True)
            space = replace(load_space("board-10min"), rungs=False, limits={})
            outline = self._sessions["torch"].task
            request = RunRequest(
                space=space.name, seed=seed, backend="torch", deterministic=True, earlier=NO_RUN,
                store=self._keep / "store",
            )  # fmt: skip
            config = RunConfig.of(request, task=self._name, folds=0, plugins=(), study="", limits=Budget(trials=TRIALS))
            setup = RunSetup(request)
            setup.space, setup.host = space, self._host
            setup.choose()
            tuning = Tuning(setup, config, outline, folder, Until(budget), Interrupt(), prior, StudyAccess())
            with suppress(EnoughError):
                tuning.tune(self._sessions, objectives_for(outline, setup.objectives))
            (folder / DONE).write_text("")
            print(f"{self._name}: {arm} {seed}, {time.process_time() - started:.1f} s here", flush=True)
        return Run.open(folder)


def compared(name: str, keep: Path, sources: Mapping[str, Run], seeds: int) -> dict[str, list[float]]:
    """Return each arm's hypervolumes by seed."""
    budget = SHARE * sum(map(work, sources[name].records))
    path = keep / f"{name.replace(' ', '-')}-{WITH}.toml"
    write_prior(path, portfolio([run for other, run in sources.items() if other != name]))
    priors = {WITHOUT: None, WITH: read_prior(path)}
    found = dict[str, list[float]]()
    with ExitStack() as stack:
        bench = Bench(name, keep, stack)
        for seed in range(1, seeds + 1):
            for arm, prior in priors.items():
                found.setdefault(arm, []).append(reached(bench.tune(arm, seed, budget, prior), budget))
    return found


def claims(differences: Mapping[str, Sequence[float]]) -> list[Claim]:
    """Judge the differences, which are paired by seed."""
    found = {name: interval(one) for name, one in differences.items()}
    better = [name for name, (middle, _) in found.items() if middle > 0]
    sure = [name for name, (middle, half) in found.items() if middle - half > 0]
    worse = [name for name, (middle, half) in found.items() if middle + half < 0]
    needed = min(BETTER, max(1, len(found) - 1))
    return [
        Claim(f"with a prior of the other tasks, the hypervolume after {SHARE:.0%} of the budget is larger on at least "
              f"{needed} of {len(found)} tasks, and certainly smaller on none",
              "project's bound; 95 % intervals of differences paired by seed",
              f"larger on {len(better)} ({', '.join(better) or 'none'}), certainly so on {len(sure)}; "
              f"certainly smaller on {', '.join(worse) or 'none'}", len(better) >= needed and not worse)
    ]  # fmt: skip


def main() -> None:
    """Run, print, judge."""
    parser = benchmark_parser(__doc__, "the digits, 2 seeds: some 3 minutes")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="runs of this and earlier calls")
    asked = parser.parse_args()
    os.environ.setdefault("TUNER_DATA", str(DATA))
    names, seeds = (QUICK, 2) if asked.quick else (asked.tasks, asked.seeds)
    rows, differences = list[Row](), dict[str, list[float]]()
    with tempfile.TemporaryDirectory(prefix="tuner-benchmark-") as folder:
        keep = (asked.keep or Path(folder)).absolute()
        os.environ["TUNER_CACHE"] = str(keep / "cache")
        (keep / "cache").mkdir(parents=True, exist_ok=True)
        sources = dict[str, Run]()
        for name in names:
            with ExitStack() as stack:
                sources[name] = Bench(name, keep, stack).tune("first", 0, math.inf)
        for name in names:
            found = compared(name, keep, sources, seeds)
            differences[name] = [one - other for one, other in zip(found[WITH], found[WITHOUT], strict=True)]
            middle, half = interval(differences[name])
            rows.append(
                {
                    "task": name, "seeds": seeds, "without": mean(found[WITHOUT]),
                    "with a prior": mean(found[WITH]), "difference": f"{middle:+.4f} ± {half:.4f}",
                    "all 30 trials": reached(sources[name], math.inf),
                }
            )  # fmt: skip
    finish("prior", rows, claims(differences), asked.json)


if __name__ == "__main__":
    main()
