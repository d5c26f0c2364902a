"""The union head: the rows of what the model knows, then one for each class the user adds."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.errors import TaskError, nearest
from tuner.task.entry import Entry


@dataclass(frozen=True, slots=True)
class KnownClass:
    """A class of the global data: its name in the data, the label shown, and its row in the given model's head."""

    name: str
    label: str
    row: int


@dataclass(frozen=True)
class Head:
    """The union head's rows, and how each domain's class names lead to them."""

    labels: tuple[str, ...]
    head_rows: tuple[int, ...]
    global_rows: Mapping[str, int]
    local_rows: Mapping[str, int]


def known_classes(entry: Entry, classes: Path | None) -> tuple[KnownClass, ...]:
    """Return the classes that occur in the global training data, in the order of the classes file.

    Without a file, a class's place among the entry's names is its row in the given model's head.

    Raises:
        TaskError: The file cannot be read, or lacks a class that occurs.
    """
    occurring = [(entry.names[place], place) for place in entry.occurring()]
    if classes is None:
        return tuple(KnownClass(name, name, place) for name, place in occurring)
    listed = read_classes(classes)
    names = {known.name for known in listed}
    lacking = next((name for name, _ in occurring if name not in names), None)
    if lacking is not None:
        raise TaskError(
            f"{classes}: lacks the class {lacking!r} of {entry.source}{nearest(lacking, names)}: "
            "add its row or remove its samples"
        )
    present = {name for name, _ in occurring}
    return tuple(known for known in listed if known.name in present)


def read_classes(path: Path) -> tuple[KnownClass, ...]:
    """Read a classes file: tab-separated (commas in a ``.csv``), with a header.

    The first column is a class's name in the data, a column whose name ends in ``index`` its row in the model's head
    (without one: its place in the file), and a column ``name`` the label shown (without one: the class's name).
    """
    is_csv = path.suffix.lower() == ".csv"
    try:
        text = path.read_text(encoding="utf-8-sig")
        table = list(
            csv.reader(
                text.splitlines(),
                delimiter="," if is_csv else "\t",
                quoting=csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE,
            )
        )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path}: the classes file cannot be read ({error}): it wants UTF-8 text with tabs") from error
    if len(table) < 2:  # noqa: PLR2004 - a header and one class
        raise TaskError(f"{path}: a classes file wants a header and a row for each class, got {len(table)} lines")
    header = [cell.strip() for cell in table[0]]
    index_at = next((at for at, title in enumerate(header) if title.endswith("index")), None)
    label_at = header.index("name") if "name" in header else 0
    found: list[KnownClass] = []
    for line, row in enumerate(table[1:], start=2):
        if not any(row):
            continue
        if len(row) != len(header):
            raise TaskError(f"{path}:{line}: a row wants {len(header)} cells as the header has, got {len(row)}")
        number = str(len(found)) if index_at is None else row[index_at].strip()
        if not number.isdecimal():
            raise TaskError(f"{path}:{line}: the row in the model's head wants an integer from 0, got {number!r}")
        found.append(KnownClass(row[0].strip(), row[label_at].strip(), int(number)))
    for what, values in (("class", [known.name for known in found]), ("index", [known.row for known in found])):
        value, count = Counter[object](values).most_common(1)[0]
        if count > 1:
            raise TaskError(f"{path}: each {what} may occur once, got {value!r} {count} times")
    return tuple(_with_distinct_labels(found))


def union_head(known: Sequence[KnownClass], local_names: Sequence[str]) -> Head:
    """Give each class its row: the known ones first, then each local class of another name, sorted as given.

    A local class shares a known one's row if it has its name in the data or its label; exactly so, or else without
    regard to case.
    """
    labels = [item.label for item in known]
    exact: dict[str, int] = {}
    folded: dict[str, int] = {}
    for row, item in enumerate(known):
        for word in (item.name, item.label):
            exact.setdefault(word, row)
            folded.setdefault(word.casefold(), row)
    local_rows: dict[str, int] = {}
    for name in local_names:
        row = exact.get(name, folded.get(name.casefold(), len(labels)))
        if row == len(labels):
            labels.append(name)
        local_rows[name] = row
    return Head(
        tuple(labels),
        tuple(item.row for item in known),
        {item.name: row for row, item in enumerate(known)},
        local_rows,
    )


def as_rows(entry: Entry, rows: Mapping[str, int], width: int, where: str) -> NDArray[Any]:
    """Turn an entry's targets into rows of the union head: int64 [n], or multi-hot float32 [n, width].

    Raises:
        TaskError: A label occurs that the training data, which `rows` was made from, lacks.
    """
    occurring = entry.occurring()
    lacking = next((entry.names[place] for place in occurring if entry.names[place] not in rows), None)
    if lacking is not None:
        raise TaskError(
            f"{where} has the label {lacking!r}, which {where.partition('.')[0]}.train lacks{nearest(lacking, rows)}: "
            f"add samples of it to train, or remove them from {entry.source}"
        )
    if entry.targets.ndim == 1:
        to_row: NDArray[np.int64] = np.zeros(len(entry.names), np.int64)
        for place in occurring:
            to_row[place] = rows[entry.names[place]]
        labels: NDArray[np.int64] = to_row[entry.targets]
        return labels
    hot = np.zeros((len(entry.targets), width), np.float32)
    for place in occurring:
        row = rows[entry.names[place]]
        hot[:, row] = np.maximum(hot[:, row], entry.targets[:, place])
    return hot


def _with_distinct_labels(found: Sequence[KnownClass]) -> list[KnownClass]:
    """ImageNet has two cranes: labels that occur twice are shown with the class's name in the data."""
    shown = Counter(item.label for item in found)
    return [
        KnownClass(item.name, f"{item.label} ({item.name})", item.row) if shown[item.label] > 1 else item
        for item in found
    ]
