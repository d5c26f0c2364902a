"""Heads in closed form next to a gradient head: what is learned, what is forgotten, in how many seconds.

Three tasks. *clothing*: 1,192 photos of 10 new classes, and 4 of each of 200 ImageNet classes that MobileNetV2 knows,
160 pixels: the two domains differ in looks. *digits*: 7 to 9, for a model that knows 0 to 6; 10 of each of these are
mixed in. *halves*: every second of the 200 classes is taken out of the head and learned again from 12 photos each, with
4 of each of the others mixed in: the domains do not differ. `--quick`: the digits alone.

Every photo goes through the frozen blocks once (`--features` keeps what they make of it); seconds are those after that,
of the processor: another process's work does not count, and a core more makes none faster.
The reference figures are the first measurement of the idea, on the clothing task, λ = 100. Intervals are of samples: of
one arm Wilson's, of two arms those of the paired differences; a claim holds at its unfavourable end.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn import functional

from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import clothing
from tuner.arrays import Array, Flags, Labels
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.inputs import inference_prefix
from tuner.metrics import Z_95, wilson
from tuner.ridge.solve import LinearHead, solve
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.task import Samples, Task
from tuner.task.builtin import digits

#: Local and global accuracy of the idea's first measurement.
REFERENCE = {"given + ridge + gate": (0.844, 0.542), "one ridge, λ = 100": (0.836, 0.184)}
SIZE, BATCH, LAMBDA = 160, 16, 100.0
MIXED, LEARNED, CHECKED, MIXED_DIGITS = 4, 12, 4, 10  # samples of a class
EPOCHS, RATE, REPEATED = 10, 1e-3, 2
LOST, BEHIND, SECONDS = 0.01, 0.05, 1.0
OURS, GRADIENT, ONE = "given + ridge + gate", "gradient head", "one ridge, λ = 100"
Part = tuple[Array, Labels]


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Inputs of a head with their labels, and the given head.

    Attributes:
        name: Of the task.
        given: The head, with zeros for what it does not know.
        local: The user's training samples.
        known: The global ones that are mixed in.
        scored: Validation samples by domain.
    """

    name: str
    given: LinearHead
    local: Part
    known: Part
    scored: Mapping[str, Part]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Whether each validation sample is right, by domain; and seconds of the processor."""

    right: Mapping[str, Flags]
    seconds: float


class Features:
    """What the blocks before the head make of a task's samples; kept in a folder, if there is one."""

    def __init__(self, task: Task, folder: Path | None) -> None:
        model = load(task)
        cut = model.info.num_blocks - 1
        self._task, self._folder, self._prefix = task, folder, inference_prefix(model, cut)
        weight, bias = (value.double().numpy() for value in model.tail(cut).state_dict().values())
        self.given = LinearHead(weight, bias)

    def of(self, name: str, each: Callable[[int], int]) -> Part:
        """Return features and labels of a partition: of each class as many of its first samples as `each` says."""
        samples: Samples = dict(self._task.partitions())[name]
        rows = np.concatenate([np.flatnonzero(samples.labels == one)[: each(one)] for one in np.unique(samples.labels)])
        kept = None if self._folder is None else self._folder / f"{self._task.name}-{name}-{len(rows)}.npy"
        if kept is not None and kept.exists():
            return np.load(kept), samples.labels[rows]
        with torch.inference_mode():
            parts = [
                self._prefix(torch.from_numpy(self._task.batch(samples, rows[first : first + BATCH]))).numpy()
                for first in range(0, len(rows), BATCH)
            ]
        if kept is not None:
            np.save(kept, np.concatenate(parts))
        return np.concatenate(parts), samples.labels[rows]


def of_digits(folder: Path | None) -> Problem:
    """Return the digits."""
    features = Features(digits(), folder)
    names = ("local", "global")
    scored = {name: features.of(f"{name}.val", lambda _: 10_000) for name in names}
    known = features.of("global.train", lambda _: MIXED_DIGITS)
    return Problem("digits", features.given, features.of("local.train", lambda _: 10_000), known, scored)


def of_photos(folder: Path | None) -> list[Problem]:
    """Return the clothing photos, and the halves of the 200 classes."""
    features = Features(clothing(SIZE), folder)
    known = features.of("global.train", lambda one: LEARNED if one % 2 else MIXED)
    val, own = features.of("global.val", lambda _: CHECKED), features.of("local.train", lambda _: 10_000)
    local_val = features.of("local.val", lambda _: 10_000)
    first = np.concatenate([np.flatnonzero(known[1] == one)[:MIXED] for one in np.unique(known[1])])
    photos = Problem("clothing", features.given, own, _rows(known, first), {"local": local_val, "global": val})
    taken = np.arange(len(features.given.bias)) % 2 == 1
    given = LinearHead(np.where(taken[:, None], 0, features.given.weight), np.where(taken, 0, features.given.bias))
    odd, even = (np.flatnonzero(taken[known[1]] == wanted) for wanted in (True, False))
    scored = {name: _rows(val, np.flatnonzero(taken[val[1]] == (name == "local"))) for name in ("local", "global")}
    return [photos, Problem("halves", given, _rows(known, odd), _rows(known, even), scored)]


def arms(problem: Problem) -> dict[str, Callable[[], LinearHead]]:
    """Return what each arm does after the features: it returns a head."""
    outputs = len(problem.given.bias)

    def domains() -> tuple[Domain, Domain]:
        step = step_of(np.concatenate([problem.local[0], problem.known[0]]))
        empty = Domain.empty(problem.local[0].shape[1], outputs, step)
        own, others = (empty.added(coded(part[0], step), part[1]) for part in (problem.local, problem.known))
        return own, others

    def union(**settings: object) -> Callable[[], LinearHead]:
        chosen = UnionSettings.of({"ridge": 300.0, **settings})
        return lambda: union_head(problem.given, *domains(), chosen).head

    def one_ridge() -> LinearHead:
        own, others = domains()
        return solve(own.sums + others.sums, LAMBDA).head

    return {
        "untouched": lambda: problem.given,
        GRADIENT: lambda: gradient_head(problem),
        ONE: one_ridge,
        OURS: union(),
        "the same, gate decides alone": union(gate="hard"),
        "the same, an offset for a gate": union(gate="none"),
        "the same, equal spread of logits": lambda: equal_spread(problem, *domains()),
        "given + class means + gate": union(scores="means"),
    }


def gradient_head(problem: Problem, seed: int = 0) -> LinearHead:
    """Return the given head after some epochs of AdamW on local and mixed-in samples."""
    torch.manual_seed(seed)
    inputs = torch.from_numpy(np.concatenate([problem.local[0], problem.known[0]])).float()
    labels = torch.from_numpy(np.concatenate([problem.local[1], problem.known[1]]))
    layer = torch.nn.Linear(inputs.shape[1], len(problem.given.bias))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(problem.given.weight))
        layer.bias.copy_(torch.from_numpy(problem.given.bias))
    optimiser = torch.optim.AdamW(layer.parameters(), RATE, weight_decay=0.0)
    steps = EPOCHS * -(-len(labels) // 32)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(labels)), 32):
            optimiser.zero_grad()
            functional.cross_entropy(layer(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]  # torch has no types here
            optimiser.step()
            schedule.step()
    return LinearHead(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())


def equal_spread(problem: Problem, local: Domain, known: Domain) -> LinearHead:
    """Return both heads, their own samples' best logits scaled to one mean and deviation: what needs no gate."""
    solved, is_local = solve(local.sums, LAMBDA).head, local.sums.cross[-1] > 0
    old, new = problem.given.scores(known.features).max(axis=1), solved.scores(local.features).max(axis=1)
    scale = old.std() / new.std()
    weight, bias = problem.given.weight.copy(), problem.given.bias.copy()
    weight[is_local] = scale * solved.weight[is_local]
    bias[is_local] = scale * (solved.bias[is_local] - new.mean()) + old.mean()
    return LinearHead(weight, bias)


def run(problem: Problem) -> dict[str, Result]:
    """Return each arm's result; seconds are the median of some runs, arms in turns."""
    of, heads = arms(problem), dict[str, LinearHead]()
    seconds: dict[str, list[float]] = {name: [] for name in of}
    for _ in range(REPEATED):
        for name, make in of.items():
            began = time.process_time()
            heads[name] = make()
            seconds[name].append(time.process_time() - began)
    return {
        name: Result(
            {domain: head.scores(part[0]).argmax(axis=1) == part[1] for domain, part in problem.scored.items()},
            median(seconds[name]),
        )
        for name, head in heads.items()
    }


def rows_of(problem: Problem, results: Mapping[str, Result]) -> list[Row]:
    """Return the table of a task."""
    rows: list[Row] = []
    for name, result in results.items():
        reference = REFERENCE.get(name) if problem.name == "clothing" else None
        row: dict[str, object] = {"task": problem.name, "head": name}
        for domain, right in result.right.items():
            low, high = wilson(float(right.mean()), len(right))
            row[domain] = f"{right.mean():.3f} ({low:.2f}–{high:.2f})"
        row |= {
            "processor s": f"{result.seconds:.3f}",
            "reference": "{:.3f} / {:.3f}".format(*reference) if reference else "",
        }
        rows.append(row)
    return rows


def claims_of(problem: Problem, results: Mapping[str, Result]) -> list[Claim]:
    """Return what a task's results show."""
    ours, claims, name = results[OURS], list[Claim](), problem.name
    mean, low = _lower(ours.right["global"], results["untouched"].right["global"])
    told = f"{100 * mean:+.1f} points, at least {100 * low:+.1f}"
    rule = f"{name}: {OURS} keeps the untouched global accuracy but for {100 * LOST:.0f} point"
    claims.append(Claim(rule, "untouched, paired", told, low >= -LOST))
    parts = [_lower(ours.right[domain], results[GRADIENT].right[domain]) for domain in ("local", "global")]
    both = sum(mean for mean, _ in parts) / 2
    half = math.hypot(*(mean - low for mean, low in parts)) / 2
    rule = f"{name}: the mean of local and global accuracy is larger than the gradient head's"
    told = f"{100 * both:+.1f} points, at least {100 * (both - half):+.1f}"
    claims.append(Claim(rule, "gradient head, paired", told, both - half > 0))
    claims.append(
        Claim(
            f"{name}: within {SECONDS:.0f} s of the processor",
            "issue",
            f"{ours.seconds:.2f} s",
            ours.seconds <= SECONDS,
        )
    )
    if name == "clothing":
        for head, (local, global_) in REFERENCE.items():
            for domain, wanted in (("local", local), ("global", global_)):
                right = results[head].right[domain]
                low, high = wilson(float(right.mean()), len(right))
                rule = f"clothing, {domain}: {head} is at most {100 * BEHIND:.0f} points behind {wanted:.3f}"
                told = f"{right.mean():.3f} ({low:.3f}–{high:.3f})"
                claims.append(Claim(rule, f"{wanted:.3f}", told, low >= wanted - BEHIND))
    return claims


def _lower(ours: Flags, theirs: Flags) -> tuple[float, float]:
    """Return the mean difference of two arms on the same samples, and its lower 95 % end."""
    differences = ours.astype(float) - theirs
    mean = float(differences.mean())
    return mean, mean - Z_95 * float(differences.std(ddof=1)) / len(differences) ** 0.5


def _rows(part: Part, rows: Array) -> Part:
    return part[0][rows], part[1][rows]


def main() -> None:
    """Run the tasks and print the tables."""
    options = benchmark_parser(__doc__)
    options.add_argument("--features", type=Path, help="a folder to keep features of photos in")
    given = options.parse_args()
    problems = [of_digits(given.features)]
    problems += [] if given.quick else of_photos(given.features)
    results = {problem.name: run(problem) for problem in problems}
    rows = [row for problem in problems for row in rows_of(problem, results[problem.name])]
    claims = [claim for problem in problems for claim in claims_of(problem, results[problem.name])]
    finish("closed_form", rows, claims, given.json)


if __name__ == "__main__":
    main()
