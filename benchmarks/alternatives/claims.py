"""What `benchmarks.alternatives` concludes: paired intervals, the table, and the claims."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from benchmarks.lib.report import Claim, Row
from tuner.arrays import Array, Doubles

#: Name of our arm that exports what is picked by default.
DEFAULT = "default"
#: Name of our arm that exports the trial with the best local accuracy.
BEST_LOCAL = "best local"
#: Points that our default pick may be behind the best simple arm on a task.
BEHIND = 0.3
#: Points that it must be ahead in the mean over tasks.
AHEAD = 1.0
#: Goals in percent, local and global, by task and seconds.
GOALS: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("sign", 60): (97.5,),
    ("sign", 300): (98.5,),
    ("objects", 300): (98.0,),
    ("clothing", 300): (87.0, 51.1),
}
#: Share by which a simple arm may take longer than the seconds allowed, and still count.
SLACK = 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """What an arm reached with one seed.

    Attributes:
        arm: Its name.
        seconds: Wall time from the task's files to a model that answers; scoring it on the test is not counted.
        local: Whether each local test sample is right, 0 or 1.
        known: The same of global test samples; None where it cannot answer them.
        note: Remark for people.
    """

    arm: str
    seconds: float
    local: tuple[int, ...]
    known: tuple[int, ...] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean of paired differences, in points, and half its 95 % interval."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        """The unfavourable end."""
        return self.mean - self.half

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of a task, by arm and in the order of seeds.

    Attributes:
        name: The task's.
        adds_classes: Whether the user's classes come beside old ones: then local and global accuracy count alike, and
            an arm that answers only one of them is not compared.
        results: By arm.
    """

    name: str
    adds_classes: bool
    results: Mapping[str, Sequence[Result]]

    def accuracy(self, arm: str, domain: Literal["local", "known"]) -> float | None:
        """Return the mean accuracy of an arm in percent."""
        flags = [getattr(result, domain) for result in self.results[arm]]
        return None if any(part is None for part in flags) else 100 * float(np.mean([np.mean(part) for part in flags]))

    def score(self, arm: str) -> float | None:
        """Return what arms are compared by, in percent; None where an arm is not compared."""
        local, known = self.accuracy(arm, "local"), self.accuracy(arm, "known")
        if not self.adds_classes:
            return local
        return None if local is None or known is None else (local + known) / 2

    def best_simple(self, seconds: int) -> str | None:
        """Return the simple arm with the best score on the test, of those that take no longer."""
        scores = {
            arm: score
            for arm, results in self.results.items()
            if not arm.startswith("ours") and np.mean([one.seconds for one in results]) <= seconds * (1 + SLACK)
            if (score := self.score(arm)) is not None
        }
        return max(scores, key=scores.__getitem__, default=None)

    def difference(self, arm: str, other: str) -> Difference | None:
        """Return by how much an arm's score is better than another's; None where one of them is not compared."""
        if self.score(arm) is None or self.score(other) is None:
            return None
        pairs = list(zip(self.results[arm], self.results[other], strict=False))
        parts = [np.array([np.subtract(mine.local, theirs.local) for mine, theirs in pairs], float)]
        if self.adds_classes:
            parts.append(np.array([np.subtract(mine.known or (), theirs.known or ()) for mine, theirs in pairs], float))
        return paired(parts)


def paired(parts: Sequence[Array]) -> Difference:
    """Return the mean of paired differences over test samples and seeds, for other samples and other seeds alike.

    Both are taken as drawn at random, and crossed: the variance of a mean is that of the samples' means over seeds,
    plus that of the seeds' means beyond what the samples explain. Student's t has the degrees of freedom of Welch and
    Satterthwaite. With one seed, the interval is for other samples alone.

    Args:
        parts: Differences of right answers, float [seeds, samples], of each domain; domains count alike.
    """
    terms: list[tuple[float, int]] = []
    for part in parts:
        seeds, samples = part.shape
        terms.append((float(part.mean(0).var(ddof=1)) / samples, samples - 1))
        if seeds > 1:
            rest: Doubles = part - part.mean(0) - part.mean(1, keepdims=True) + part.mean()
            noise = float((rest**2).sum()) / ((seeds - 1) * (samples - 1)) / samples
            terms.append((max(0.0, float(part.mean(1).var(ddof=1)) - noise) / seeds, seeds - 1))
    variance, count = sum(value for value, _ in terms), len(parts)
    mean = 100 * float(np.mean([part.mean() for part in parts]))
    if variance == 0:
        return Difference(mean, 0.0)
    freedom = variance**2 / sum(value**2 / free for value, free in terms)
    return Difference(mean, 100 * float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance) / count)


def mean_of(differences: Sequence[Difference]) -> Difference:
    """Return the mean of independent differences."""
    halves = math.hypot(*(one.half for one in differences))
    return Difference(float(np.mean([one.mean for one in differences])), halves / len(differences))


def ours(seconds: int, pick: str) -> str:
    """Return the name of one of our arms."""
    return f"ours {seconds} s, {pick}"


def rows_of(task: Measured, seconds: int) -> list[Row]:
    """Return a task's table; differences are our default pick's, after so many seconds."""
    mine, rows = ours(seconds, DEFAULT), list[Row]()
    for arm, results in task.results.items():
        local, known = task.accuracy(arm, "local"), task.accuracy(arm, "known")
        difference = task.difference(mine, arm) if mine in task.results and arm != mine else None
        rows.append(
            {
                "task": task.name,
                "arm": arm,
                "local %": f"{local:.1f}",
                "global %": "–" if known is None else f"{known:.1f}",
                "s": f"{np.mean([one.seconds for one in results]):.0f}",
                "seeds": len(results),
                **({f"{mine} − arm": "" if difference is None else str(difference)} if mine in task.results else {}),
            }
        )
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns), *([str(row.get(name, "")) for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims_of(tasks: Sequence[Measured], seconds: Mapping[str, Sequence[int]]) -> list[Claim]:
    """Return what the results show.

    Args:
        tasks: The results.
        seconds: The seconds that ours was given on each task; the longest counts for the comparison.
    """
    claims, found = list[Claim](), list[Difference]()
    for task in tasks:
        longest = max(seconds[task.name])
        mine, best = ours(longest, DEFAULT), task.best_simple(longest)
        difference = task.difference(mine, best) if best is not None and mine in task.results else None
        if difference is not None:
            found.append(difference)
        text = f"{task.name}: {mine} is at most {BEHIND} points behind the best simple arm"
        measured = "no result" if difference is None else f"{difference} points, at least {difference.low:+.2f}"
        met = difference is not None and difference.low >= -BEHIND
        claims.append(Claim(text, f"{best}, best on the test itself", measured, met))
        claims += [_goal(task, limit, wanted) for (name, limit), wanted in GOALS.items()
                   if name == task.name and limit in seconds[name]]  # fmt: skip
    total = mean_of(found) if len(found) == len(tasks) and found else None
    measured = "not every task has a result" if total is None else f"{total} points, at least {total.low:+.2f}"
    text = f"ours is at least {AHEAD} points ahead of the best simple arm in the mean over {len(tasks)} tasks"
    met = total is not None and total.low >= AHEAD
    return [*claims, Claim(text, "each task's best simple arm", measured, met)]


def _goal(task: Measured, seconds: int, wanted: Sequence[float]) -> Claim:
    arm = ours(seconds, DEFAULT)
    domains: tuple[Literal["local", "known"], ...] = ("local", "known")
    reached = [task.accuracy(arm, domain) for domain in domains[: len(wanted)]] if arm in task.results else []
    met = bool(reached) and all(have is not None and have >= goal for have, goal in zip(reached, wanted, strict=True))
    measured = " / ".join("–" if have is None else f"{have:.1f}" for have in reached) or "no result"
    text = f"{task.name}: {arm} has at least {' / '.join(f'{goal:.1f}' for goal in wanted)} %, in the mean over seeds"
    return Claim(text, "this project's goal", measured, met)
