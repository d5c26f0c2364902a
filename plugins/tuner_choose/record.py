"""What a run's model was chosen from, in the run's folder."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import RunError
from tuner.printable import printable
from tuner.results.folder import CANDIDATES
from tuner.units import format_bytes, format_seconds
from tuner.untrusted import inside, read_json, reason_of
from tuner_choose.scores import Difference

if TYPE_CHECKING:
    from rich.table import Table

    from tuner.results.run import Run

FORMAT = 1
LOCAL = "local_accuracy"
TITLES = ("model", "local accuracy", "a prediction", "weights", "memory", "samples")


def record_of(folder: Path) -> dict[str, Any] | None:
    """Return the content of `CANDIDATES` in a run's folder; None where it is not there.

    Raises:
        RunError: It cannot be read.
    """
    try:
        record = read_json(inside(folder, CANDIDATES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / CANDIDATES} cannot be read ({reason_of(error)}): begin the run anew") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT or not isinstance(record.get("chosen"), str):
        raise RunError(f"{folder / CANDIDATES} is none that this version reads: begin the run anew")
    return record


def read(folder: Path) -> dict[str, Any] | None:
    """Return what a run's model was chosen from, as ``tuner show --json`` prints it; None where there was one model."""
    record = record_of(folder)
    return None if record is None else {key: value for key, value in record.items() if key != "format"}


def lines(run: "Run") -> "Iterator[Table | str]":
    """Yield the table of a run's candidates, for people, their front, and what each size that was searched came to.

    Nothing without any.
    """
    from tuner.cli.text.screen import table_of

    record, file = record_of(run.folder), run.folder / CANDIDATES
    if record is None:
        return
    try:
        found = record["candidates"]
        rows, seconds = [_row(row, record["unit"]) for row in found], format_seconds(record["seconds"])
        more = [*left_lines(found), *second_lines(found), *_front_lines(found), *_searched(run, record)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{file} cannot be read ({error}): begin the run anew") from None
    scored = "of each, a last layer alone was fitted, and each sample scored by a fit without it"
    yield f"the model was chosen from {len(rows)} candidates in {seconds}: {scored}"
    yield table_of(TITLES, rows)
    yield from map(printable, more)


def left_lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return why candidates were left, a line for each reason."""
    reasons = dict[str, list[str]]()
    for row in found:
        if row.get("reason"):
            reasons.setdefault(row["reason"], []).append(row["candidate"])
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not chosen: {reason}"
        for reason, names in reasons.items()
    ]


def second_lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return which candidate is searched next to the chosen one, and why; nothing where none is."""
    return [
        f"{row['candidate']} is searched too, another size of that network that may be as good: {_difference(row)}"
        for row in found
        if row.get("searched") and not row["chosen"]
    ]


def _front_lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the front of the candidates by score and costs of a prediction, from the cheapest on."""
    front = sorted((row for row in found if row.get("on_front")), key=lambda row: float(row["relative_costs"]))
    if len(front) > 1:
        chosen = next(row["candidate"] for row in found if row.get("chosen"))
        yield f"front of the candidates, compared with {chosen}:"
        yield from (f"  {row['candidate']}: {_difference(row)}" for row in front if not row["chosen"])


def _difference(row: Mapping[str, Any]) -> str:
    gain = Difference(*(float(row[key]) for key in ("gain", "gain_low", "gain_high")))
    return f"{gain} at {float(row['relative_costs']):.1f} × the {row['costs']} of a prediction"


def _searched(run: "Run", record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the best member of the front for each size, where several were searched."""
    best, own = dict[int, tuple[float, int]](), run.info.model.side
    for record_of_trial in (run.record(trial) for trial in run.front if record.get("sizes")):
        if record_of_trial.plan is not None and (score := record_of_trial.values.get(LOCAL)) is not None:
            size = record_of_trial.plan.size or own
            best[size] = max(best.get(size, (-math.inf, 0)), (score, record_of_trial.trial))
    parts = [
        f"at {size} px {run.objective(LOCAL).text(score)} (trial {trial})" for size, (score, trial) in best.items()
    ]
    if parts:
        yield f"searched, best {run.objective(LOCAL).title}: {', '.join(parts)}"


def _row(row: dict[str, Any], unit: str) -> list[str]:
    name = printable(f"{'→ ' if row.get('chosen') else ''}{row['candidate']}")
    if row.get("accuracy") is None:
        return [name, *["–"] * (len(TITLES) - 1)]
    score, low, high = (float(row[key]) for key in ("accuracy", "low", "high"))
    text = f"{score:.3f} ({low:.3f}–{high:.3f})"
    return [
        name,
        f"{100 * score:.1f} % ({100 * low:.0f}–{100 * high:.0f})" if unit == "%" else text,
        f"{1000 * row['latency_seconds']:.3g} ms",
        format_bytes(row["bytes"]),
        format_bytes(row["peak_bytes"]),
        f"{row['samples']:,}",
    ]
