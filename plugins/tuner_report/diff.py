"""Two runs side by side: what was asked of each, and what came of it, also as text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.commands.runs.source import run_folder
from tuner.metrics import wilson
from tuner.results.run import Run
from tuner.results.scores.objectives import DOMAINS, SCORES, Objective, titled
from tuner.results.scores.pareto import area, front
from tuner.results.views.pick import named_picks
from tuner.units import format_bytes, format_seconds

#: Units of what a trial costs on the device that it ran on.
COSTS = frozenset({"s", "B", "J"})
#: Names of the two runs in text.
A, B = "A", "B"


@dataclass(frozen=True, slots=True)
class RunDiff:
    """How two runs differ; every pair is of the first run and of the second.

    Attributes:
        runs: Folders of the runs, or addresses of studies.
        asked: Settings that differ, by name.
        results: What the runs came to, by name.
        front: Values of the members of each front that are worth a look, by trial.
        picks: Trial of each named pick.
        beaten: Number of members of each front that a member of the other front dominates; None where the values are
            not comparable.
        notes: Why values of one run are not comparable with those of the other; empty where they are.
    """

    runs: tuple[str, str]
    asked: Mapping[str, tuple[Any, Any]]
    results: Mapping[str, tuple[Any, Any]]
    front: tuple[Mapping[int, Mapping[str, float]], Mapping[int, Mapping[str, float]]]
    picks: tuple[Mapping[str, int], Mapping[str, int]]
    beaten: tuple[int, int] | None
    notes: tuple[str, ...]


def open_pair(one: str, other: str) -> tuple[Run, Run]:
    """Read two runs or shared studies, with the costs of one kind of device where both ran on it.

    Raises:
        TunerError: One cannot be read.
    """
    with run_folder(one) as folder, run_folder(other) as second:
        runs = Run.open(folder), Run.open(second)
        kinds = [run.info.kind for run in runs]
        shared = [name for name in (*kinds, *runs[0].info.kinds) if all(name in run.info.kinds for run in runs)]
        if not shared or kinds[0] == kinds[1]:
            return runs
        return Run.open(folder, kind=shared[0]), Run.open(second, kind=shared[0])


def diff(one: Run, other: Run) -> RunDiff:
    """Compare two runs."""
    asked = _paired(_asked(one), _asked(other))
    notes = tuple(_notes(one, other))
    beaten = None if notes else (_beaten(one, other), _beaten(other, one))
    return RunDiff(
        runs=(one.place, other.place),
        asked={name: pair for name, pair in asked.items() if pair[0] != pair[1]},
        results=_paired(_results(one), _results(other)),
        front=(_front(one), _front(other)),
        picks=(named_picks(one), named_picks(other)),
        beaten=beaten,
        notes=notes,
    )


def _paired(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (one.get(name), other.get(name)) for name in [*one, *(name for name in other if name not in one)]}


def _asked(run: Run) -> dict[str, Any]:
    info, config = run.info, run.info.config
    return {
        "task": info.task_name,
        "task_data": info.identity.task,
        "model": info.model.name,
        "space": info.space_name,
        "space_content": info.identity.space,
        "seed": config.seed,
        "backend": config.backend,
        "deterministic": config.deterministic,
        "device": run.device,
        "threads": info.threads,
        **asdict(config.limits),
        "objectives": ", ".join(objective.name for objective in run.objectives),
        **{f"plugin {name}": origin for name, origin in info.plugins.items()},
    }


def _results(run: Run) -> dict[str, Any]:
    members = [run.record(trial).values for trial in run.front]
    return {
        "ended": run.info.ended,
        "spent_seconds": run.info.spent.seconds,
        **{f"trials_{state}": number for state, number in run.counts.items()},
        **{f"scored_{domain}": number for domain, number in run.scored_samples.items()},
        **{f"untouched_{name}": value for name, value in run.info.untouched.values.items()},
        "front_members": len(members),
        "hypervolume": area(members),
        **{f"best_{one.name}": _best(one, members) for one in run.objectives if members},
        "pick": run.best,
        **(_values(run, run.best, "pick_") if run.best is not None else {}),
    }


def _best(objective: Objective, members: Sequence[Mapping[str, float]]) -> float:
    return min((values[objective.name] for values in members), key=lambda value: objective.sign * value)


def _front(run: Run) -> Mapping[int, Mapping[str, float]]:
    return {trial: _values(run, trial) for trial in run.shortlist}


def _values(run: Run, trial: int, prefix: str = "") -> dict[str, float]:
    return {prefix + one.name: run.record(trial).values[one.name] for one in run.objectives}


def _notes(one: Run, other: Run) -> list[str]:
    notes = []
    if one.info.identity.task != other.info.identity.task:
        notes.append("the tasks differ: accuracies are of different samples")
    elif one.scored_samples != other.scored_samples:
        notes.append("the fronts were scored on different numbers of validation samples")
    if [own.name for own in one.objectives] != [own.name for own in other.objectives]:
        notes.append("the objectives differ")
    if _has_costs(one) and (devices := _devices(one, other)):
        notes.append(f"costs are of different kinds of devices: {' and '.join(devices)}")
    return notes


def _has_costs(run: Run) -> bool:
    """Return whether a run's objectives depend on the device that it ran on."""
    return not run.info.config.deterministic and any(one.unit in COSTS for one in run.objectives)


def _devices(one: Run, other: Run) -> tuple[str, ...]:
    """Return the kinds of devices of two runs where they differ; nothing where one of them is not known."""
    kinds = [run.info.kinds.get(run.info.kind) for run in (one, other)]
    names = tuple(
        run.device if kind is None else f"{kind.device} ({run.info.kind})"
        for run, kind in zip((one, other), kinds, strict=True)
    )
    mine, theirs = kinds
    differ = (
        one.device != other.device if mine is None or theirs is None else not mine.device.is_as_fast_as(theirs.device)
    )
    return names if differ and all(names) else ()


def _beaten(run: Run, by: Run) -> int:
    """Return how many members of a front a member of the other front dominates."""
    rivals, mine = (
        [tuple(one.loss(run.record(trial).values) for one in run.objectives) for trial in _unbeaten(run)]
        for run in (by, run)
    )
    return sum(
        any(rival != own and all(a <= b for a, b in zip(rival, own, strict=True)) for rival in rivals) for own in mine
    )


def _unbeaten(run: Run) -> list[int]:
    """Return the front without a pick that another member dominates."""
    return front({trial: run.record(trial).values for trial in run.front}, run.objectives)


def format_diff(found: RunDiff, objectives: Mapping[str, Objective]) -> str:
    """Return the comparison for people.

    Args:
        found: To print.
        objectives: The objectives of both runs, by name, for their units.
    """
    lines = [f"{A}: {found.runs[0]}", f"{B}: {found.runs[1]}", *(f"note: {note}" for note in found.notes)]
    asked = {name: pair for name, pair in found.asked.items() if name not in {"task_data", "space_content"}}
    lines += _table("asked", asked, objectives) if asked else ["asked: the same of both"]
    if "space_content" in found.asked and "space" not in found.asked:
        lines.append("  the search spaces have one name and differ in content")
    lines += _table("results", found.results, objectives)
    for side, letter in enumerate((A, B)):
        has_intervals = not any(objective.unit in SCORES for objective in objectives.values())
        lines.append(f"front of {letter}{' (95 % intervals)' if has_intervals else ''}:")
        for trial, values in found.front[side].items():
            names = [name for name, picked in found.picks[side].items() if picked == trial]
            named = f" ({', '.join(names)})" if names else ""
            texts = (_with_interval(found, side, objectives[name], value) for name, value in values.items())
            lines.append(f"  {trial}: {', '.join(texts)}{named}")
    if found.beaten is not None:
        sizes = [found.results["front_members"][side] for side in (0, 1)]
        lines.append(
            f"a trial of {B} beats {found.beaten[0]} of {sizes[0]} trials on the front of {A}; "
            f"a trial of {A} beats {found.beaten[1]} of {sizes[1]} on that of {B}"
        )
    return "\n".join(lines)


def _table(title: str, pairs: Mapping[str, tuple[Any, Any]], objectives: Mapping[str, Objective]) -> list[str]:
    rows = [(title, A, B)]
    for name, pair in pairs.items():
        if name.startswith("trials_") and not any(pair):
            continue
        one, other = (_cell(name, value, objectives) for value in pair)
        rows.append((f"  {_row_title(name, objectives)}", one, other))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row_title(name: str, objectives: Mapping[str, Objective]) -> str:
    """Return a row's name for people, with the runs' own score as what is called accuracy."""
    return titled(name, next((objective.unit for objective in objectives.values() if objective.unit in SCORES), "%"))


def _with_interval(found: RunDiff, side: int, objective: Objective, value: float) -> str:
    """Return a value with its unit; an accuracy with its 95 % interval."""
    count = found.results.get(f"scored_{DOMAINS.get(objective.name)}", (None, None))[side]
    if not count or objective.unit in SCORES:
        return objective.text(value)
    low, high = wilson(value, count)
    return f"{objective.text(value)} ({100 * low:.0f}–{100 * high:.0f})"


def _cell(name: str, value: Any, objectives: Mapping[str, Objective]) -> str:
    if value is None:
        return "–"
    measure = name.removeprefix("best_").removeprefix("pick_").removeprefix("untouched_")
    if isinstance(value, float) and measure in objectives:
        return objectives[measure].text(value)
    if isinstance(value, float) and name.endswith("_seconds"):
        return format_seconds(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name == "forgetting":
        return f"{100 * value:.1f} points"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
