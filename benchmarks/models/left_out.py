"""What leave-one-out says of a head in closed form, next to what it reaches on test samples that nobody saw.

Each seed draws the user's samples anew from all that the data has: 400 photos of sign digits, 500 of objects, 200
digits of 7 to 9 next to known ones. A fifth of them is `local.val`; the head is solved on the others. Scored are:
`local.val` alone; all local samples, those that the head was solved on by leave-one-out; and the rest of the data, the
test. *chosen of six*: of six heads (five penalties, class means) the best by leave-one-out. *solved anew*: for some of
the samples, the head is solved without each in turn, and its four numbers with it; the difference is how hopeful the
numbers make leave-one-out. Without known classes they change no answer. `--quick`: the digits alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.alternatives.arms import Subject
from benchmarks.alternatives.tasks import TASKS
from benchmarks.lib.report import Claim, Row, benchmark_parser, finish, interval
from benchmarks.lib.setup import Joined, first_of_each
from tuner.arrays import Array, Flags, Labels
from tuner.metrics import wilson
from tuner.ridge.solve import LinearHead
from tuner.ridge.sums import coded, step_of
from tuner.ridge.union import Domain, UnionSettings, union_head
from tuner.task import Samples, stratified_holdout

SEEDS = 5
#: Local samples that a user has, and how many of each known class are mixed in.
OWN, MIXED = {"sign": 400, "objects": 500, "digits": 200}, 10
VALIDATION = 0.2
USUAL = UnionSettings(ridge=300.0)
#: Heads that one is chosen from.
CHOICES = (*(UnionSettings(ridge=ridge) for ridge in (10.0, 30.0, 100.0, 300.0, 1000.0)), UnionSettings(scores="means"))
#: Samples of a seed that heads are solved anew without.
ANEW = 40
Part = tuple[Array, Labels]


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """All that the data has: features and labels of local samples, and of those of known classes; the given head."""

    name: str
    given: LinearHead
    local: Part
    known: Part


def pool_of(name: str, folder: Path | None) -> Pool:
    """Return the features of a task's samples; a folder keeps them."""
    problem = TASKS[name](0)
    subject = Subject(problem)
    weight, bias = (value.double().numpy() for value in subject.model.tail(subject.head_cut).state_dict().values())
    rows = subject.model.trusted_rows
    weight[rows:], bias[rows:] = 0, 0

    def features(of: str, samples: Samples) -> Part:
        path = None if folder is None else folder / f"{name}-{of}-{len(samples)}.npy"
        if path is not None and path.exists():
            return np.load(path), samples.labels
        found = subject.frozen(samples).x
        if path is not None:
            np.save(path, found)
        return found, samples.labels

    local = features("local", Joined(problem.own, problem.test))
    known = local[0][:0], local[1][:0]
    if problem.task.global_ is not None:
        known = features("known", problem.task.global_.train)
    places = first_of_each(known[1], MIXED)
    return Pool(name, LinearHead(weight, bias), local, (known[0][places], known[1][places]))


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Whether answers are right, by what they were asked of."""

    val: Flags
    left_out: Flags
    test: Flags

    @property
    def every(self) -> Flags:
        """Of all local samples."""
        return np.concatenate([self.val, self.left_out])


class Seed:
    """One draw of a user's samples."""

    def __init__(self, pool: Pool, seed: int) -> None:
        labels = pool.local[1]
        rest, own = stratified_holdout(labels, OWN[pool.name] / len(labels), seed)
        train, val = (own[part] for part in stratified_holdout(labels[own], VALIDATION, seed))
        self._given, step = pool.given, step_of(np.concatenate([pool.local[0], pool.known[0]]))
        empty = Domain.empty(pool.local[0].shape[1], len(pool.given.bias), step)
        codes = coded(pool.local[0], step)
        self.local = empty.added(codes[train], labels[train])
        self._known = empty.added(coded(pool.known[0], step), pool.known[1])
        self._val, self._test = ((codes[rows] * step, labels[rows]) for rows in (val, rest))

    def scored(self, settings: UnionSettings) -> Scored:
        """Solve for a head and score it."""
        solved = union_head(self._given, self.local, self._known, settings)
        val, test = (solved.head.scores(rows).argmax(axis=1) == labels for rows, labels in (self._val, self._test))
        return Scored(val, solved.left_out.argmax(axis=1) == self.local.labels, test)

    def hopeful(self, settings: UnionSettings, scored: Scored) -> float:
        """Return by how much leave-one-out is above heads that are solved anew without some samples, each in turn."""
        rows = np.linspace(0, len(self.local) - 1, ANEW).astype(np.int64)
        right = np.zeros(ANEW, bool)
        for place, row in enumerate(rows):
            head = union_head(self._given, self.local.without(np.array([row])), self._known, settings).head
            answer = head.scores(self.local.features[row : row + 1]).argmax(axis=1)
            right[place] = answer[0] == self.local.labels[row]
        return float(scored.left_out[rows].mean() - right.mean())


def rows_of(pool: Pool) -> Iterator[tuple[Row, Claim]]:
    """Yield a row and a claim for each way to choose a head."""
    seeds = [Seed(pool, seed) for seed in range(SEEDS)]
    usual = [seed.scored(USUAL) for seed in seeds]
    chosen = [max(map(seed.scored, CHOICES), key=lambda one: float(one.every.mean())) for seed in seeds]
    for name, found in {"λ = 300": usual, "chosen of six": chosen}.items():
        val, every, test = (
            np.array([part.mean() for part in parts])
            for parts in zip(*((one.val, one.every, one.test) for one in found), strict=True)
        )
        mean, half = interval(every - test)
        widths = [_width(part) for part in (found[0].val, found[0].every)]
        row = {
            "task": pool.name, "head": name, "test": f"{100 * test.mean():.1f} %",
            "all local": f"{100 * every.mean():.1f} %", "less test": f"{100 * mean:+.2f} ± {100 * half:.2f}",
            "off by": f"{100 * np.abs(every - test).mean():.1f}",
            "local.val off by": f"{100 * np.abs(val - test).mean():.1f}",
            "interval of local.val": f"{100 * widths[0]:.1f}", "of all local": f"{100 * widths[1]:.1f}",
        }  # fmt: skip
        if name == "λ = 300" and len(pool.known[1]):
            anew = [seed.hopeful(USUAL, one) for seed, one in zip(seeds, usual, strict=True)]
            row["less solved anew"] = "{:+.2f} ± {:.2f}".format(*(100 * one for one in interval(anew)))
        rule = f"{pool.name}, {name}: leave-one-out is too hopeful by less than half of its interval"
        most = f"{row['less test']}, at most {100 * (mean + half):+.2f}"
        yield row, Claim(rule, f"{50 * widths[1]:.1f} points", most, mean + half < widths[1] / 2)


def _width(right: Flags) -> float:
    low, high = wilson(float(right.mean()), len(right))
    return high - low


def main() -> None:
    """Run the tasks and print the table."""
    options = benchmark_parser(__doc__)
    options.add_argument("--features", type=Path, help="a folder to keep features in")
    given = options.parse_args()
    pools = [pool_of(name, given.features) for name in (("digits",) if given.quick else ("digits", "sign", "objects"))]
    found = [pair for pool in pools for pair in rows_of(pool)]
    finish("left_out", [row for row, _ in found], [claim for _, claim in found], given.json)


if __name__ == "__main__":
    main()
