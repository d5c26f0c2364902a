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
#: Points that our default pick may be behind the best simple arm on a task after the longest time.
BEHIND = 0.0
#: Points that it may be behind after less.
BEHIND_BEFORE: Mapping[int, float] = {60: 0.5}
#: Points that it must be ahead in the mean over tasks.
AHEAD = 1.5
#: Goals in percent, local and global, by task and seconds.
GOALS: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("sign", 60): (97.5,),
    ("sign", 300): (98.8,),
    ("objects", 300): (98.0,),
    ("clothing", 300): (87.5, 52.1),
}
#: Least recall of a class with ten samples, in percent.
RARE_RECALL = 43.0
#: Points that the other classes may lose by it.
OTHERS_LOSE = 1.0
#: Least area under the ROC curve of strangers.
SEPARATION = 0.95
#: Tasks that must reach it.
SEPARATED = 4
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
        unknown: Area under the ROC curve of samples of classes that were left out; None where none were.
    """

    arm: str
    seconds: float
    local: tuple[int, ...]
    known: tuple[int, ...] | None = None
    note: str = ""
    unknown: float | None = None


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
        rare: Whether each local test answer is of the class that has few samples; empty where no class was cut.
    """

    name: str
    adds_classes: bool
    results: Mapping[str, Sequence[Result]]
    rare: tuple[bool, ...] = ()

    def accuracy(self, arm: str, domain: Literal["local", "known"]) -> float | None:
        """Return the mean accuracy of an arm in percent."""
        flags = [getattr(result, domain) for result in self.results[arm]]
        return None if any(part is None for part in flags) else 100 * float(np.mean([np.mean(part) for part in flags]))

    def divided(self, arm: str, rare: Sequence[bool]) -> tuple[float, float]:
        """Return an arm's recall of the rare class and accuracy of the others, in percent."""
        flags, is_rare = np.array([result.local for result in self.results[arm]], float), np.array(rare, bool)
        return 100 * float(flags[:, is_rare].mean()), 100 * float(flags[:, ~is_rare].mean())

    def unknown(self, arm: str) -> float | None:
        """Return the mean area under the ROC curve of strangers; None where an arm has none."""
        areas = [result.unknown for result in self.results[arm] if result.unknown is not None]
        return float(np.mean(areas)) if areas else None

    def mine(self, seconds: int) -> str:
        """Return which of our arms is compared: the default pick, fitted on all samples if the export can do that."""
        return refitted(seconds) if refitted(seconds) in self.results else ours(seconds, DEFAULT)

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


def refitted(seconds: int) -> str:
    """Return the name of our arm that exports the default pick, fitted again on all samples."""
    return f"{ours(seconds, DEFAULT)}, refitted"


def rows_of(task: Measured, seconds: int) -> list[Row]:
    """Return a task's table; differences are our default pick's, after so many seconds."""
    mine, rows = task.mine(seconds), list[Row]()
    for arm, results in task.results.items():
        local, known = task.accuracy(arm, "local"), task.accuracy(arm, "known")
        difference = task.difference(mine, arm) if mine in task.results and arm != mine else None
        rows.append(
            {
                "task": task.name, "arm": arm, "local %": f"{local:.1f}",
                "global %": "–" if known is None else f"{known:.1f}",
                "s": f"{np.mean([one.seconds for one in results]):.0f}", "seeds": len(results), **_also(task, arm),
                **({f"{mine} − arm": "" if difference is None else str(difference)} if mine in task.results else {}),
            }
        )  # fmt: skip
    return rows


def _also(task: Measured, arm: str) -> Row:
    """Return what is asked of some tasks alone."""
    unknown, found = task.unknown(arm), dict[str, object]()
    if task.rare:
        recall, others = task.divided(arm, task.rare)
        found |= {"rare class %": f"{recall:.1f}", "others %": f"{others:.1f}"}
    return found if unknown is None else found | {"AUROC of strangers": f"{unknown:.3f}"}


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
    compared = [task for task in tasks if not task.name.startswith(("rare-", "unknown-"))]
    for task in compared:
        for limit in seconds[task.name]:
            difference, claim = _behind(task, limit, longest=limit == max(seconds[task.name]))
            claims += [] if claim is None else [claim]
            if difference is not None and limit == max(seconds[task.name]):
                found.append(difference)
        claims += [_goal(task, limit, wanted) for (name, limit), wanted in GOALS.items()
                   if name == task.name and limit in seconds[name]]  # fmt: skip
    if compared:
        total = mean_of(found) if len(found) == len(compared) else None
        measured = "not every task has a result" if total is None else f"{total} points, at least {total.low:+.2f}"
        text = f"ours is at least {AHEAD} points ahead of the best simple arm in the mean over {len(compared)} tasks"
        met = total is not None and total.low >= AHEAD
        claims.append(Claim(text, "each task's best simple arm", measured, met))
    by_name = {task.name: task for task in tasks}
    for task in tasks:
        if task.rare:
            whole = task.name.removeprefix("rare-")
            limits = [max(seconds.get(name, seconds[task.name])) for name in (task.name, whole)]
            claims.append(_rare(task, limits[0], by_name.get(whole), limits[1]))
    strangers = [task for task in tasks if task.name.startswith("unknown-")]
    return [*claims, *([_separated(strangers, seconds)] if strangers else [])]


def _behind(task: Measured, seconds: int, *, longest: bool) -> tuple[Difference | None, Claim | None]:
    """Return how far ours is ahead of the best simple arm, and the claim of that; None where nothing is claimed."""
    bound = BEHIND if longest else BEHIND_BEFORE.get(seconds)
    mine, best = task.mine(seconds), task.best_simple(seconds)
    difference = task.difference(mine, best) if best is not None and mine in task.results else None
    if bound is None:
        return difference, None
    text = f"{task.name}: {mine} is at most {bound} points behind the best simple arm"
    measured = "no result" if difference is None else f"{difference} points, at least {difference.low:+.2f}"
    met = difference is not None and difference.low >= -bound
    return difference, Claim(text, f"{best}, best on the test itself", measured, met)


def _rare(task: Measured, seconds: int, whole: Measured | None, whole_seconds: int) -> Claim:
    """Return the claim on a class of few samples; the others are compared with the task where the class has all."""
    arm = task.mine(seconds)
    text = f"{task.name}: {arm} finds at least {RARE_RECALL:.0f} % of a class with ten samples"
    text = f"{text}, the others lose at most {OTHERS_LOSE:.0f} point"
    if arm not in task.results:
        return Claim(text, "this project's goal", "no result", met=False)
    (recall, others), before = task.divided(arm, task.rare), None
    if whole is not None and whole.mine(whole_seconds) in whole.results:
        before = whole.divided(whole.mine(whole_seconds), task.rare)[1]
    met = before is not None and recall >= RARE_RECALL and others >= before - OTHERS_LOSE
    compared = "the whole task was not run" if before is None else f"with all samples {before:.1f} %"
    return Claim(text, "this project's goal", f"{recall:.1f} %, others {others:.1f} %; {compared}", met)


def _separated(tasks: Sequence[Measured], seconds: Mapping[str, Sequence[int]]) -> Claim:
    """Return the claim on samples of classes that were left out."""
    arms = {task.name: task.mine(max(seconds[task.name])) for task in tasks}
    areas = {task.name: task.unknown(arms[task.name]) for task in tasks if arms[task.name] in task.results}
    reached = sum(area is not None and area >= SEPARATION for area in areas.values())
    text = f"the AUROC of samples of classes that were left out is at least {SEPARATION} on {SEPARATED} of five tasks"
    measured = ", ".join(f"{name} {area:.3f}" for name, area in areas.items() if area is not None) or "no result"
    return Claim(text, "this project's goal", measured, reached >= SEPARATED)


def _goal(task: Measured, seconds: int, wanted: Sequence[float]) -> Claim:
    arm = task.mine(seconds)
    domains: tuple[Literal["local", "known"], ...] = ("local", "known")
    reached = [task.accuracy(arm, domain) for domain in domains[: len(wanted)]] if arm in task.results else []
    met = bool(reached) and all(have is not None and have >= goal for have, goal in zip(reached, wanted, strict=True))
    measured = " / ".join("–" if have is None else f"{have:.1f}" for have in reached) or "no result"
    text = f"{task.name}: {arm} has at least {' / '.join(f'{goal:.1f}' for goal in wanted)} %, in the mean over seeds"
    return Claim(text, "this project's goal", measured, met)
