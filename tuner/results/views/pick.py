"""Pick a trial: a name such as the knee, a number, or an expression over the values of the front."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping

from tuner.errors import RunError, UsageError, nearest
from tuner.results.records.trial import TrialRecord, binding
from tuner.results.run import Run
from tuner.results.scores.objectives import BUNDLE_BYTES
from tuner.results.scores.pareto import is_alike
from tuner.targets.base import ACCURACY

COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}
EXAMPLE = "for example 'global_accuracy >= 50 % and min(train_seconds)'"
#: What each named pick is good for, for people.
PICKS: Mapping[str, str] = {
    "best": "most accurate on yours, of those that keep the known classes",
    "knee": "a balance of all columns",
    "fastest": "least time to train, within a standard error of the best",
    "smallest": "smallest file, within a standard error of the best",
    "safest": "keeps most of the known classes, of those worth a look",
}
#: Of each named pick that compares members by one value: the value, and 1 where the least counts, -1 where the most.
_BY = {"fastest": ("train_seconds", 1.0), "smallest": ("peak_bytes", 1.0), "safest": ("global_accuracy", -1.0)}
#: What counts instead where nothing trains: the time of a prediction.
_OTHERWISE = {"fastest": "mean_latency_seconds"}
_PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")


def pick_trial(run: Run, pick: str) -> TrialRecord:
    """Return the record that `pick` names.

    Args:
        run: Run whose front is not empty.
        pick: One of `PICKS`; a trial's number; or conditions joined by ``and``, of which at most one is ``max(NAME)``
            or ``min(NAME)``: among the front members that meet the others, the one with the largest or smallest value.

    Raises:
        RunError: The front is empty, or nothing meets the conditions.
        UsageError: `pick` cannot be read.
    """
    if not run.front:
        raise RunError(f"{run.place} has no front to pick from: {nothing_feasible(run)}")
    if pick in PICKS:
        return _named(run, pick)
    if pick.isdecimal():
        return run.record(int(pick))
    members = [run.record(trial) for trial in run.front]
    names = [name for name in members[0].values if all(name in member.values for member in members)]
    conditions, best = _parsed(pick, tuple(names))
    candidates = [member for member in members if all(holds(member) for holds in conditions)]
    if not candidates:
        raise RunError(f"no member of the front meets {pick!r}: `tuner show {run.place}` lists them")
    if best is None:
        best_ = next((member for member in candidates if member.trial == run.best), None)
        return best_ or candidates[0]
    sign, name = best
    return min(candidates, key=lambda member: (sign * member.values[name], member.trial))


def named_picks(run: Run) -> dict[str, int]:
    """Return the trial of each of `PICKS` that a run can answer."""
    trials: dict[str, int] = {}
    for name in PICKS if run.front else ():
        try:
            trials[name] = _named(run, name).trial
        except RunError:
            continue
    return trials


def _named(run: Run, name: str) -> TrialRecord:
    members = [run.record(trial) for trial in run.front]
    if name == "knee":
        return run.record(run.front[0] if run.knee is None else run.knee)
    if name == "best":
        return run.record(run.front[0] if run.best is None else run.best)
    value, sign = _BY[name]
    shown = set(run.front if name in {"fastest", "smallest"} and run.best is not None else run.shortlist or run.front)
    free = max(run.info.untouched.values.get("local_accuracy", 0.0), run.info.task.most_frequent)
    gaining = [one for one in members if one.trial in shown and one.values.get("local_accuracy", 0.0) > free]
    if run.best is not None and name in {"fastest", "smallest"}:
        chosen = run.record(run.best).values
        alike = [one for one in gaining if is_alike(one.values, chosen, run.scored_samples, run.objectives)]
        gaining = alike or gaining
    if not gaining:
        raise RunError(
            f"--pick {name} chooses among trials that gain on the user's data, but none of {run.place} does: "
            "pick best, knee or a trial's number"
        )
    value = value if any(value in one.values for one in gaining) else _OTHERWISE.get(name, value)
    if any(value not in one.values for one in gaining):
        raise RunError(f"--pick {name} compares {value}, which this run did not measure: pick another")
    sized = BUNDLE_BYTES.name if name == "smallest" else ""  # equal to two digits is equal: nobody chooses by bytes

    def order(one: TrialRecord) -> tuple[float, ...]:
        return float(f"{one.values.get(sized, 0.0):.2g}"), sign * one.values[value], *_by_accuracy(one)

    return min(gaining, key=order)


def _by_accuracy(record: TrialRecord) -> tuple[float, float, float, int]:
    """Order records: higher local, then higher global accuracy, then less training time, come first."""
    values = record.values
    local, global_ = values.get("local_accuracy", 0.0), values.get("global_accuracy", 0.0)
    return -local, -global_, values.get("train_seconds", 0.0), record.trial


def nothing_feasible(run: Run) -> str:
    """Return why the front is empty: which limit binds, and the nearest miss."""
    broken: dict[str, list[TrialRecord]] = {}
    for record in run.records:
        for name, value in record.constraint.items():
            if value > 0:
                broken.setdefault(name, []).append(record)
    if not broken:
        return f"no trial ended ({run.info.ended})" if run.info.config.study else "no trial ended"
    name = max(broken, key=lambda constraint: len(broken[constraint]))
    close = min(broken[name], key=lambda record: record.constraint[name])
    share = f"{len(broken[name])} of {len(run.records)} trials"
    miss = close.reason or _over(name, close.constraint[name])
    return f"{share} do not count because of {binding(name)}; nearest miss: trial {close.trial}, {miss}"


def _over(name: str, value: float) -> str:
    """Say by how much a trial that was scored breaks a limit."""
    if name == "forget-at-most":
        return f"{100 * value:.1f} points over it"
    return f"{math.exp(min(value, 99)):,.2f} times the limit"


def _parsed(pick: str, names: tuple[str, ...]) -> tuple[list[Callable[[TrialRecord], bool]], tuple[float, str] | None]:
    try:
        tree = ast.parse(_PERCENT.sub(r"percent(\1)", pick), mode="eval").body
    except (SyntaxError, ValueError):
        raise UsageError(f"--pick must be {_choices()}, got {pick!r}: {EXAMPLE}") from None
    if isinstance(tree, ast.Name):
        raise UsageError(f"--pick must be {_choices()}, got {pick!r}{nearest(pick, PICKS)}")
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    conditions: list[Callable[[TrialRecord], bool]] = []
    best: tuple[float, str] | None = None
    for part in parts:
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and type(part.ops[0]) in COMPARE:
            conditions.append(_condition(part, pick, names))
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and len(part.args) == 1 and best is None:
            if part.func.id not in {"min", "max"}:
                raise UsageError(f"--pick supports min and max, got {part.func.id!r}: {EXAMPLE}")
            best = (1.0 if part.func.id == "min" else -1.0, _name(part.args[0], pick, names))
        else:
            raise UsageError(f"--pick cannot read {ast.unparse(part)!r}: {EXAMPLE}")
    return conditions, best


def _condition(part: ast.Compare, pick: str, names: tuple[str, ...]) -> Callable[[TrialRecord], bool]:
    name = _name(part.left, pick, names)
    number, compare = _number(part.comparators[0], name), COMPARE[type(part.ops[0])]
    return lambda record: compare(record.values[name], number)


def _number(node: ast.expr, name: str) -> float:
    """Return the number that a value is compared with: 50 % is 0.5."""
    bound, is_percent = node, False
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "percent" and len(node.args) == 1:
        bound, is_percent = node.args[0], True
    if not isinstance(bound, ast.Constant) or not isinstance(bound.value, int | float):
        raise UsageError(f"--pick compares a value with a number, got {ast.unparse(node)!r}: {EXAMPLE}")
    is_share = name.endswith(ACCURACY)
    if is_percent and not is_share:
        raise UsageError(f"--pick: {name} is no share, got {bound.value} %: leave out the %")
    if is_share and not is_percent and bound.value > 1:
        raise UsageError(f"--pick: {name} is a share from 0 to 1, got {bound.value}: write {bound.value} %")
    number = float(min(bound.value, 1e300))  # a larger integer is no float
    return round(number / 100, 12) if is_percent else number


def _choices() -> str:
    return f"one of {', '.join(PICKS)}, a trial's number, or an expression"


def _name(node: ast.expr, pick: str, names: tuple[str, ...]) -> str:
    if not isinstance(node, ast.Name) or node.id not in names:
        word = ast.unparse(node)
        raise UsageError(
            f"--pick {pick!r}: there is no value {word!r}{nearest(word, names)}; known: {', '.join(names)}"
        )
    return node.id
