"""The union head: the rows of the global classes, then one for each class the user adds; or one for each output."""

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.arrays import Labels
from tuner.errors import TaskError, nearest
from tuner.reading import read_text, same_form
from tuner.targets.names import MOST_DIGITS, are_numbers
from tuner.targets.regression import are_named
from tuner.targets.strata import moved
from tuner.task.data.entry import Entry

#: Classes that a note names.
MOST_NAMED = 4
#: Titles of a classes file's columns, besides those that end in ``index``.
TITLES = frozenset(
    ("category", "class", "classes", "class_name", "folder", "id", "label", "labels", "name", "names", "wnid")
)


@dataclass(frozen=True, slots=True)
class GlobalClass:
    """A class of the global data: its name there, the label shown, and its row in the given model's head."""

    name: str
    label: str
    row: int


@dataclass(frozen=True)
class UnionHead:
    """The union head's rows, and the row of each domain's class names.

    Attributes:
        labels: Label of each row.
        head_rows: Row in the given model's head of each global class, which are the first rows.
        global_rows: Row by class name in the global data.
        local_rows: Row by class name in the local data.
    """

    labels: tuple[str, ...]
    head_rows: tuple[int, ...]
    global_rows: Mapping[str, int]
    local_rows: Mapping[str, int]


def global_classes(entry: Entry, listed: Sequence[GlobalClass] | None, path: Path | None) -> list[GlobalClass]:
    """Return the classes that occur in the global training data, in the order of the classes file.

    Without a file, a class's row in the given model's head is the number that it is named by, or its place among the
    entry's names.

    Raises:
        TaskError: The file lacks a class that occurs.
    """
    occurring = [(entry.names[place], place) for place in entry.occurring()]
    if listed is None:
        are_rows = are_numbers(entry.names)
        return [GlobalClass(name, name, int(name) if are_rows else place) for name, place in occurring]
    names = {listed_class.name for listed_class in listed}
    missing = next((name for name, _ in occurring if name not in names), None)
    if missing is not None:
        raise TaskError(
            f"{path}: lacks the class {missing!r} of {entry.source}{nearest(missing, names)}: "
            "add its row or remove its samples"
        )
    present = {name for name, _ in occurring}
    return [listed_class for listed_class in listed if listed_class.name in present]


def row_cautions(entry: Entry, classes: Sequence[GlobalClass], *, is_listed: bool) -> Iterator[str]:
    """Yield what is believed of the rows of the global classes of files, where no classes file gives them."""
    if is_listed or ".npz" in entry.source or not classes:  # the numbers, or the names, of an .npz are in its own order
        return
    rows = [item.row for item in classes]
    if not are_numbers(entry.names):
        first = min(classes, key=lambda item: item.row)
        yield (
            f"warning: global.classes is missing, so {first.name!r}, the first global class by name, is taken for row "
            f"{first.row} of the model's last layer, and so on (docs/tasks.md, The head)"
        )
    elif rows != list(range(len(rows))) or [item.name for item in classes] != sorted(entry.names):
        yield (
            "note: the global classes are named by numbers: each is taken for that row of the model's last layer, "
            f"counted from 0 (rows {min(rows)} to {max(rows)}); give global.classes if they are others"
        )


def matched_by_number(head: UnionHead, local: Entry) -> Iterator[str]:
    """Yield a note where local classes without names are taken for global ones because of their numbers alone."""
    names = [local.names[place] for place in local.occurring()]
    matched = [name for name in names if name.isdecimal() and head.local_rows[name] < len(head.head_rows)]
    if matched:
        listed = ", ".join(matched[:MOST_NAMED]) + (" …" if len(matched) > MOST_NAMED else "")
        yield (
            f"note: the local classes {listed} are numbers, and count as the global classes of the same numbers: if "
            "they are others, give them names"
        )


def read_classes(path: Path, known: Collection[str] = ()) -> list[GlobalClass]:
    """Read a classes file: tab-separated (commas in a ``.csv``), with a header, or a list of names without one.

    The first column is a class's name in the data, a column whose name ends in ``index`` its row in the model's head
    (without one: its place in the file), and a column ``name`` the label shown (without one: the class's name).
    Without a header there is one column of names, or two, of which one has the rows.

    Args:
        path: The file.
        known: Names of the classes in the data.

    Raises:
        TaskError: The file cannot be read, a row does not match the header, or a class or a row occurs twice.
    """
    read = _read_table(path)
    table = _with_header(path, read, known)
    header = [cell.strip().casefold() for cell in table[0]]
    index_at = next((at for at, title in enumerate(header) if title.endswith("index")), None)
    label_at = header.index("name") if "name" in header else 0
    classes: list[GlobalClass] = []
    for line, row in enumerate(table[1:], start=2 - len(table) + len(read)):
        if not any(row):
            continue
        if len(row) != len(header):
            raise TaskError(f"{path}:{line}: a row must have {len(header)} cells like the header, got {len(row)}")
        number = str(len(classes)) if index_at is None else row[index_at].strip()
        if not number.isdecimal() or len(number) > MOST_DIGITS:
            raise TaskError(f"{path}:{line}: the row in the model's head must be an integer from 0, got {number!r}")
        classes.append(GlobalClass(row[0].strip(), row[label_at].strip(), int(number)))
    _check_unique(path, "class", [item.name for item in classes])
    _check_unique(path, "index", [item.row for item in classes])
    return _with_distinct_labels(classes)


def union_head(classes: Sequence[GlobalClass], local_names: Sequence[str]) -> UnionHead:
    """Give each class its row: the global ones first, then each local class of another name, in the order given.

    A local class shares a global one's row if it has its name in the data or its label, in any case if not exactly.
    """
    labels = [item.label for item in classes]
    exact: dict[str, int] = {}
    folded: dict[str, int] = {}
    for row, item in enumerate(classes):
        for word in (item.name, item.label):
            exact.setdefault(word, row)
            folded.setdefault(word.casefold(), row)
    local_rows: dict[str, int] = {}
    for name in local_names:
        row = exact.get(name, folded.get(name.casefold(), len(labels)))
        if row == len(labels):
            labels.append(name)
        local_rows[name] = row
    global_rows = {item.name: row for row, item in enumerate(classes)}
    return UnionHead(tuple(labels), tuple(item.row for item in classes), global_rows, local_rows)


def output_head(entries: Sequence[Entry], path: Path) -> UnionHead:
    """Return a row for each output that is a number: the given model has all of them.

    Raises:
        TaskError: Entries have other outputs than each other.
    """
    named = next((entry for entry in entries if are_named(entry.names)), entries[0])
    for entry in entries:
        if len(entry.names) != len(named.names) or (are_named(entry.names) and entry.names != named.names):
            raise TaskError(
                f"{path}: {entry.source} has the outputs {', '.join(entry.names)}, {named.source} has "
                f"{', '.join(named.names)}: all data of a regression must have the same targets in the same order"
            )
    rows = {name: row for row, name in enumerate(named.names)}
    return UnionHead(named.names, tuple(rows.values()), rows, rows)


def as_rows(entry: Entry, rows: Mapping[str, int], outputs: int, where: str) -> Labels:
    """Return an entry's targets as rows of the union head: int64 [n], or multi-hot float32 [n, outputs].

    `rows` is by class name, `where` the full name of the partition, such as ``"local.val"``.

    Raises:
        TaskError: A label occurs that the training data lacks.
    """
    occurring = entry.occurring()
    missing = next((entry.names[place] for place in occurring if entry.names[place] not in rows), None)
    if missing is not None:
        raise TaskError(
            f"{where} has the label {missing!r}, which {where.partition('.')[0]}.train lacks{nearest(missing, rows)}: "
            f"add samples of it to train, or remove them from {entry.source}"
        )
    return moved(entry.targets, {place: (rows[entry.names[place]],) for place in occurring}, outputs)


def _with_header(path: Path, table: list[list[str]], known: Collection[str]) -> list[list[str]]:
    """Return the cells of a classes file with a header, which is put in front where there is none.

    Raises:
        TaskError: The first line may be either; or it is none, and the others do not say what they hold.
    """
    first = [cell.strip() for cell in table[0]]
    titles = [cell.casefold() for cell in first]
    if first[0] not in known and any(title in TITLES or title.endswith("index") for title in titles):
        return table
    rows = [row for row in table if any(row)]
    if all(len(row) == 1 for row in rows):
        if known and first[0] not in known:
            raise TaskError(
                f"{path}:1: the first line must be the title of the column, or a class of the global data, got "
                f"{first[0]!r}: write class as the first line"
            )
        return [["class"], *table]
    numbered = [at for at in (0, 1) if all(len(row) == 2 and row[at].strip().isdecimal() for row in rows)]  # noqa: PLR2004
    if len(numbered) == 1:
        return [["class", "index"], *([row[1 - numbered[0]], row[numbered[0]]] if any(row) else row for row in table)]
    if first[0] in known or any(cell.isdecimal() for cell in first):
        raise TaskError(
            f"{path}:1: the first line must be the titles of the columns, got the class {first[0]!r}: write class, "
            "index or name above each"
        )
    return table


def _read_table(path: Path) -> list[list[str]]:
    """Return the cells of a classes file: a header and at least one row, or rows."""
    is_csv = path.suffix.lower() == ".csv"
    text = same_form(read_text(path, TaskError, "the classes file must be UTF-8 text with tabs"))
    try:
        lines = text.splitlines()
        table = list(csv.reader(lines) if is_csv else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except csv.Error as error:
        raise TaskError(f"{path}: the classes file cannot be read ({error}): it must have short cells") from error
    if len(table) < 2:  # noqa: PLR2004 - a header and one class
        raise TaskError(f"{path}: a classes file must have a header and a row per class, got {len(table)} lines")
    return table


def _check_unique(path: Path, what: str, values: Sequence[object]) -> None:
    value, count = Counter(values).most_common(1)[0]
    if count > 1:
        raise TaskError(f"{path}: each {what} may occur once, got {value!r} {count} times")


def _with_distinct_labels(classes: Sequence[GlobalClass]) -> list[GlobalClass]:
    """Add the class's name in the data to labels that occur twice: ImageNet has two cranes."""
    twice = {label for label, count in Counter(item.label for item in classes).items() if count > 1}
    return [replace(item, label=f"{item.label} ({item.name})") if item.label in twice else item for item in classes]
