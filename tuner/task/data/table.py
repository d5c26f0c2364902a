"""Tables of numbers in CSV files: rows that are samples, or steps in time, with their labels in a column."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.arrays import Floats
from tuner.errors import TaskError, nearest
from tuner.reading import kind_of, read_text, same_form
from tuner.targets import Targets
from tuner.targets.base import SEPARATOR
from tuner.task.data.samples import Samples
from tuner.task.spec import InputSpec

SUFFIX = ".csv"
MOST_BYTES = 1_000_000_000
#: Names of columns, in lower case: the label, who or when it was recorded, and what only counts rows.
LABELS = ("label", "class", "target", "activity", "gesture", "category", "species", "variety")
SESSIONS = ("session", "person", "subject", "user", "participant")
TIMES = ("time", "timestamp", "seconds", "ms", "date", "datetime")
COUNTERS = ("", "index", "id", "row", "unnamed: 0")
#: Recordings that the only stretch of a class is divided into, so that some can be held out.
PARTS = 5
_WAY_OUT = "save it as CSV in UTF-8"


class Table(NamedTuple):
    """Numbers of a table, float32 [rows, columns], and of each row its label and its session, where there are any.

    `columns` are their names; none where the file has no header, or the same name twice. `first` is the first row.
    """

    columns: tuple[str, ...]
    values: Floats
    labels: list[str]
    sessions: list[str]
    is_timed: bool
    first: int

    def labels_of(self, file: Path, targets: Targets, rows: Sequence[int] | None = None) -> list[tuple[str, ...]]:
        """Return the labels of rows; a `TaskError` where a cell has as many as a sample cannot have."""
        found = list[tuple[str, ...]]()
        for row in range(len(self.labels)) if rows is None else rows:
            found.append(tuple(filter(None, map(str.strip, self.labels[row].split(SEPARATOR)))))
            targets.check_cell(found[-1], self.labels[row], f"{file}: row {row + self.first}")
        return found


def split_column(path: Path) -> tuple[Path, str]:
    """Return a file and what follows its name after ``#``: the column of the labels, or which sessions to take."""
    if kind_of(path) != "nothing":
        return path, ""
    name, mark, part = str(path).rpartition("#")
    return (Path(name), part) if mark else (path, "")


def label_column(path: Path, *, needed: bool = False) -> str:
    """Return the name of the column that seems to hold the labels; empty where none does, a `TaskError` if `needed`."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        head = file.readline()
    header = next(csv.reader([head], delimiter=_delimiter(head)), [])
    names = {name.strip().lower(): name.strip() for name in header}
    found = next((names[name] for name in LABELS if name in names), "")
    if needed and not found:
        read_table(path)  # it may say why
        raise TaskError(f"{path}: no column seems to hold the labels: name it, as '{path.name}#COLUMN'")
    return found


def is_manifest(path: Path) -> bool:
    """Return whether a CSV file lists other files with their labels."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return [name.strip() for name in file.readline().split(",")][:2] == ["path", "label"]


def read_table(path: Path, label: str | None = None, columns: Sequence[str] = ()) -> Table:
    """Read a table of numbers; the first line may name the columns, and columns of times and counters are left out.

    Args:
        path: The file; cells are separated by commas, semicolons or tabs.
        label: Name of the column of the labels; None where the file needs none.
        columns: Names of the columns to read, in order, from a file that names its own; all where there are none.

    Raises:
        TaskError: The file is no such table, or has no such column.
    """
    text = read_text(path, TaskError, _WAY_OUT, MOST_BYTES)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)) if row]
    except csv.Error as error:
        raise TaskError(f"{path}: not a CSV table ({error}): {_WAY_OUT}") from error
    named = bool(rows) and not all(map(_is_number, rows[0]))
    if named and _is_sample(rows):
        raise TaskError(
            f"{path}: the first row must name the columns, but seems to be a sample ({','.join(rows[0]):.60}): write a "
            "line of names above it, such as a,b,label"
        )
    header = [name.strip() for name in rows[0]] if named else [str(at) for at in range(len(rows[0]) if rows else 0)]
    rows = rows[named:]
    ragged = next((at for at, row in enumerate(rows, 1 + named) if len(row) != len(header)), None)
    if not rows or ragged is not None:
        what = "has no rows" if ragged is None else f"row {ragged} must have {len(header)} cells, as the first has"
        raise TaskError(f"{path}: {what}: {_WAY_OUT}")
    if label and label not in header:
        raise TaskError(f"{path}: there is no column {label!r}{nearest(label, header)}: it has {', '.join(header)}")
    lower = [name.lower() for name in header]
    session = next((at for at, name in enumerate(lower) if name in SESSIONS and header[at] != label), None)
    no_label = lower.index("label") if label is None and "label" in lower else None
    out = {session, no_label, *(at for at, name in enumerate(header) if name == label)}
    out |= {at for at, name in enumerate(lower) if named and name in (*TIMES, *COUNTERS)}
    kept = [at for at in range(len(header)) if at not in out]
    if named and columns:
        if missing := [name for name in columns if name not in header]:
            raise TaskError(f"{path}: column {missing[0]!r} is missing, which the model was trained with: add it")
        kept = list(map(header.index, columns))
    names = tuple(header[at] for at in kept)
    try:
        values = np.array([[float(row[at]) for at in kept] for row in rows], np.float32)
    except ValueError:
        raise TaskError(_not_numbers(path, rows, header, kept, named)) from None
    if not kept or not np.isfinite(values).all():
        place = np.argwhere(~np.isfinite(values))[0] if kept else None
        where = "no column of numbers" if place is None else f"row {place[0] + 1 + named} is not a finite number"
        raise TaskError(f"{path}: {where}: a table must hold numbers, and one column of labels")
    return Table(
        names if named and len(set(names)) == len(names) else (),
        values,
        [same_form(row[header.index(label)].strip()) for row in rows] if label else [],
        ["" if session is None else row[session].strip() for row in rows],
        any(name in TIMES for name in lower),
        1 + named,
    )


def with_columns(spec: InputSpec, partitions: Mapping[str, Samples]) -> InputSpec:
    """Return the input with the names of its columns, where tables name them; a `TaskError` where these differ."""
    named = {where: samples.columns for where, samples in partitions.items() if samples.columns}
    first, columns = next(iter(named.items()), ("", ()))
    for where, others in named.items():
        for number, (name, other) in enumerate(zip_longest(columns, others), 1):
            if name != other:
                raise TaskError(
                    f"column {number} of numbers must be the same in all tables of a task, but is {name!r} in {first} "
                    f"and {other!r} in {where}: write them in one order"
                )
    return replace(spec, columns=columns)


def stretches(table: Table) -> list[tuple[int, int]]:
    """Return where each stretch of rows of one label and session begins and ends; the only one of a label in parts."""
    keys = list(zip(table.labels, table.sessions, strict=True))
    lengths = [len(list(group)) for _, group in groupby(keys)]
    edges = np.concatenate(([0], np.cumsum(lengths))).tolist()
    found = list(pairwise(edges))
    times = Counter(table.labels[begin] for begin, _ in found)
    return [
        part
        for begin, end in found
        for part in pairwise(
            np.linspace(begin, end, PARTS + 1).astype(int).tolist()
            if times[table.labels[begin]] == 1 and end - begin >= PARTS
            else (begin, end)
        )
    ]


def _not_numbers(path: Path, rows: list[list[str]], header: list[str], kept: list[int], named: bool) -> str:
    line, at = next((line, at) for line, row in enumerate(rows, 1 + named) for at in kept if not _is_number(row[at]))
    cell, name = rows[line - 1 - named][at], header[at]
    return (
        f"{path}: row {line}, column {name!r} must be a number, got {cell!r}: remove the column, or if it holds the "
        f"labels, give {path.name}#{name}"
    )


def _is_sample(rows: list[list[str]]) -> bool:
    """Return whether the first row has numbers, and words that its columns have again."""
    words = [at for at, cell in enumerate(rows[0]) if not _is_number(cell)]
    again = (any(at < len(row) and row[at] == rows[0][at] for row in rows[1:]) for at in words)
    return 0 < len(words) < len(rows[0]) and all(again)


def _delimiter(text: str) -> str:
    head = text[: text.find("\n")] if "\n" in text else text
    return max(",;\t", key=head.count)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
