"""What a run's model was chosen from, in the run's folder."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import RunError
from tuner.printable import printable
from tuner.results.folder import CANDIDATES
from tuner.units import format_bytes, format_seconds
from tuner.untrusted import inside, read_json, reason_of

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 1
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


def lines(folder: Path) -> "Iterator[Table | str]":
    """Yield the table of a run's candidates, for people, and what dearer ones would bring; nothing without any."""
    from tuner.cli.text.screen import table_of

    record = record_of(folder)
    if record is None:
        return
    try:
        found = record["candidates"]
        rows, seconds = [_row(row, record["unit"]) for row in found], format_seconds(record["seconds"])
        left = list(map(printable, left_lines(found)))
        dearer = [printable(str(line)) for line in record["dearer"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / CANDIDATES} cannot be read ({error}): begin the run anew") from None
    scored = "of each, a last layer alone was fitted, and each sample scored by a fit without it"
    yield f"the model was chosen from {len(rows)} candidates in {seconds}: {scored}"
    yield table_of(TITLES, rows)
    yield from (*left, *dearer)


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
