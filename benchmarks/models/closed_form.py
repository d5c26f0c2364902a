"""Heads in closed form next to a gradient head: what is learned, what is forgotten, in how many seconds.

Three tasks. *clothing*: 1,192 photos of 10 new classes, and 4 of each of 200 ImageNet classes that MobileNetV2 knows,
160 pixels: the two domains differ in looks. *digits*: 7 to 9, for a model that knows 0 to 6; 10 of each of these are
mixed in. *halves*: every second of the 200 classes is taken out of the head and learned again from 12 photos each, with
4 of each of the others mixed in: the domains do not differ. `--quick`: the digits alone.

Two more tables use the user's classes alone. *Penalty*: the penalty that leave-one-out chooses, and the one that would
have been best on the test samples. *Rare*: nine classes of clothing with 130 photos and one with ten, each class once
and with three seeds, scored on the photos that are left; before, every row counted one and λ was 300.

Every photo goes through the frozen blocks once (`--features` keeps what they make of it); seconds are those after that,
of the processor: another process's work does not count, and a core more makes none faster.
The reference figures are the first measurement of the idea, on the clothing task, λ = 100. Intervals are of samples: of
one arm Wilson's, of two arms those of the paired differences; a claim holds at its unfavourable end.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn import functional

from benchmarks.alternatives.tasks import photos
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish
from benchmarks.lib.setup import clothing
from tuner.arrays import Array, Flags, Labels
from tuner.backends.torch.model.open.load import load
from tuner.backends.torch.trial.inputs import inference_prefix
from tuner.metrics import Z_95, wilson
from tuner.ridge.choice import PENALTIES, chosen
from tuner.ridge.solve import LinearHead, solve, spread
from tuner.ridge.sums import Sums, coded, one_hot, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.task import Samples, Task
from tuner.task.builtin import digits

#: Local and global accuracy of the idea's first measurement.
REFERENCE = {"given + ridge + gate": (0.844, 0.542), "one ridge, λ = 100": (0.836, 0.184)}
SIZE, BATCH, LAMBDA = 160, 16, 100.0
MIXED, LEARNED, CHECKED, MIXED_DIGITS = 4, 12, 4, 10  # samples of a class
EPOCHS, RATE, REPEATED = 10, 1e-3, 2
LOST, BEHIND, SECONDS = 0.01, 0.05, 1.0
#: Photos of the frequent classes, of the rare one; seeds; the penalty of before; recall wanted of the rare class.
MANY, FEW, SEEDS, PLAIN, RECALL = 130, 10, 3, 300.0, 0.43
#: How far leave-one-out may be from the best penalty.
NEAR = 0.003
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
        fixed = UnionSettings.of({"ridge": PLAIN, "gate_ridge": PLAIN, **settings})
        return lambda: union_head(problem.given, *domains(), fixed).head

    def ours(scores: str = "ridge") -> LinearHead:
        own, others = domains()
        return union_head(problem.given, own, others, chosen(own, others, UnionSettings(scores=scores))).head

    def one_ridge() -> LinearHead:
        own, others = domains()
        return solve(own.sums() + others.sums(), LAMBDA).head

    return {
        "untouched": lambda: problem.given,
        GRADIENT: lambda: gradient_head(problem),
        ONE: one_ridge,
        OURS: ours,
        "given + joint ridge": lambda: ours("joint"),
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
    solved, is_local = solve(local.sums(), LAMBDA).head, local.sums().cross[-1] > 0
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


def alone(part: Part) -> tuple[LinearHead, Domain, Domain]:
    """Return a head that knows nothing, samples by the numbers of the classes that they have, and no others."""
    labels = np.unique(part[1], return_inverse=True)[1]
    outputs, step = int(labels.max()) + 1, step_of(part[0])
    empty = Domain.empty(part[0].shape[1], outputs, step)
    given = LinearHead(np.zeros((outputs, part[0].shape[1])), np.zeros(outputs))
    return given, empty.added(coded(part[0], step), labels), empty


def penalty(name: str, own: Part, test: Part) -> tuple[Row, Claim]:
    """Return how right the head is that leave-one-out chooses, and the best of its kind."""
    given, local, none = alone(own)
    truth = np.searchsorted(np.unique(own[1]), test[1])
    settings = chosen(local, none, UnionSettings())

    def right(ridge: float) -> float:
        head = union_head(given, local, none, replace(settings, ridge=ridge)).head
        return float((head.scores(test[0]).argmax(axis=1) == truth).mean())

    ours, best = right(settings.ridge), max(map(right, PENALTIES))
    row: Row = {"penalty of": name, "chosen": settings.text, "test": f"{ours:.3f}", "best penalty": f"{best:.3f}"}
    rule = f"{name}: leave-one-out chooses a penalty within {100 * NEAR:.1f} points of the best"
    return row, Claim(rule, "best penalty", f"{100 * (ours - best):+.1f} points", ours >= best - NEAR)


def rare(own: Part) -> tuple[list[Row], list[Claim]]:
    """Return the recall of a class with few photos among others with many, before and now."""
    labels = np.unique(own[1], return_inverse=True)[1]
    found: dict[str, list[tuple[float, float]]] = {"before": [], "now": []}
    for seed in range(SEEDS):
        orders = [np.random.default_rng(seed).permutation(np.flatnonzero(labels == one)) for one in np.unique(labels)]
        for few in range(len(orders)):
            many = [min(MANY, 4 * len(rows) // 5) for rows in orders]  # a fifth of a smaller class is left to score
            kept = np.concatenate([rows[: FEW if one == few else many[one]] for one, rows in enumerate(orders)])
            rest = np.concatenate([rows[many[one] :] for one, rows in enumerate(orders)])
            given, local, none = alone((own[0][kept], labels[kept]))
            codes, hot = coded(own[0][kept], local.step), one_hot(labels[kept], len(orders))
            plain = Sums.empty(codes.shape[1], len(orders), local.step).added(codes, hot)
            heads = {
                "before": solve(plain, PLAIN * spread(plain)).head,
                "now": union_head(given, local, none, chosen(local, none, UnionSettings())).head,
            }
            is_rare = labels[rest] == few
            for name, head in heads.items():
                right = head.scores(own[0][rest]).argmax(axis=1) == labels[rest]
                found[name].append((float(right[is_rare].mean()), float(right[~is_rare].mean())))
    means = {name: np.mean(values, axis=0) for name, values in found.items()}
    rows: list[Row] = [
        {"rare class": name, "recall": f"{few:.3f}", "others": f"{others:.3f}"} for name, (few, others) in means.items()
    ]
    (_, others), (recall, kept_others) = means["before"], means["now"]
    told = f"{100 * recall:.1f} %, others {100 * (kept_others - others):+.1f} points"
    rule = f"a class of {FEW} among {MANY} each is found in {100 * RECALL:.0f} % of cases, others within a point"
    return rows, [Claim(rule, "before", told, bool(recall >= RECALL and kept_others >= others - LOST))]


def of_class_folders(name: str, folder: Path | None) -> tuple[Part, Part]:
    """Return the user's samples and the test samples of a folder of photos."""
    problem = photos(name, 0)
    task = replace(problem.task, local=replace(problem.task.local, train=problem.own, test=problem.test))
    features = Features(task, folder)
    own, test = (features.of(f"local.{part}", lambda _: 10_000) for part in ("train", "test"))
    return own, test


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
    parts = {"digits": (problems[0].local, problems[0].scored["local"])}
    parts |= {} if given.quick else {name: of_class_folders(name, given.features) for name in ("sign", "objects")}
    for name, (own, test) in parts.items():
        row, claim = penalty(name, own, test)
        rows, claims = [*rows, row], [*claims, claim]
    if not given.quick:
        every = problems[1].local, problems[1].scored["local"]
        found, told = rare((np.concatenate([one[0] for one in every]), np.concatenate([one[1] for one in every])))
        rows, claims = [*rows, *found], [*claims, *told]
    finish("closed_form", rows, claims, given.json)


if __name__ == "__main__":
    main()
