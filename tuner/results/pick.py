"""Pick a trial: the knee, a number, or an expression over the values of the front."""

import ast
import operator
from collections.abc import Callable

from tuner.errors import RunError, nearest
from tuner.results.records import TrialRecord, binding
from tuner.results.run import Run

COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.GtE: operator.ge,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.Lt: operator.lt,
}
EXAMPLE = "for example 'max(local_accuracy)' or 'global_accuracy >= 0.5 and min(train_seconds)'"


def pick_trial(run: Run, pick: str) -> TrialRecord:
    """Return the record that `pick` names.

    Args:
        run: Run whose front is not empty.
        pick: ``knee``; a trial's number; or conditions joined by ``and``, of which at most one is ``max(NAME)`` or
            ``min(NAME)``: among the front members that meet the others, the one with the largest or smallest value.

    Raises:
        RunError: The front is empty, nothing meets the conditions, or the expression cannot be read.
    """
    if not run.front:
        raise RunError(f"{run.folder} has no front to pick from: {nothing_feasible(run)}")
    if pick == "knee":
        return run.record(run.front[0] if run.knee is None else run.knee)
    if pick.isdecimal():
        return run.record(int(pick))
    members = [run.record(trial) for trial in run.front]
    conditions, best = _parsed(pick, tuple(members[0].values))
    candidates = [member for member in members if all(holds(member) for holds in conditions)]
    if not candidates:
        raise RunError(f"no member of the front meets {pick!r}: `tuner show {run.folder}` lists them")
    if best is None:
        knee = next((member for member in candidates if member.trial == run.knee), None)
        return knee or candidates[0]
    sign, name = best
    return min(candidates, key=lambda member: (sign * member.values[name], member.trial))


def nothing_feasible(run: Run) -> str:
    """Return why the front is empty: which limit binds, and the nearest miss."""
    broken: dict[str, list[TrialRecord]] = {}
    for record in run.records:
        for name, value in record.constraint.items():
            if value > 0:
                broken.setdefault(name, []).append(record)
    if not broken:
        return "no trial ended"
    name = max(broken, key=lambda constraint: len(broken[constraint]))
    close = min(broken[name], key=lambda record: record.constraint[name])
    share = f"{len(broken[name])} of {len(run.records)} trials"
    return f"{share} do not count because of {binding(name)}; nearest miss: trial {close.trial}, {close.reason}"


def _parsed(pick: str, names: tuple[str, ...]) -> tuple[list[Callable[[TrialRecord], bool]], tuple[float, str] | None]:
    try:
        tree = ast.parse(pick, mode="eval").body
    except (SyntaxError, ValueError):
        raise RunError(f"--pick must be knee, a trial's number or an expression, got {pick!r}: {EXAMPLE}") from None
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    conditions: list[Callable[[TrialRecord], bool]] = []
    best: tuple[float, str] | None = None
    for part in parts:
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and type(part.ops[0]) in COMPARE:
            conditions.append(_condition(part, pick, names))
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and len(part.args) == 1 and best is None:
            if part.func.id not in {"min", "max"}:
                raise RunError(f"--pick supports min and max, got {part.func.id!r}: {EXAMPLE}")
            best = (1.0 if part.func.id == "min" else -1.0, _name(part.args[0], pick, names))
        else:
            raise RunError(f"--pick cannot read {ast.unparse(part)!r}: {EXAMPLE}")
    return conditions, best


def _condition(part: ast.Compare, pick: str, names: tuple[str, ...]) -> Callable[[TrialRecord], bool]:
    name = _name(part.left, pick, names)
    bound = part.comparators[0]
    if not isinstance(bound, ast.Constant) or not isinstance(bound.value, int | float):
        raise RunError(f"--pick compares a value with a number, got {ast.unparse(bound)!r}: {EXAMPLE}")
    number, compare = float(bound.value), COMPARE[type(part.ops[0])]
    return lambda record: compare(record.values[name], number)


def _name(node: ast.expr, pick: str, names: tuple[str, ...]) -> str:
    if not isinstance(node, ast.Name) or node.id not in names:
        word = ast.unparse(node)
        raise RunError(f"--pick {pick!r}: there is no value {word!r}{nearest(word, names)}; known: {', '.join(names)}")
    return node.id
