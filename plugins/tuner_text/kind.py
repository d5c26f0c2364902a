"""The kind ``text``: files in class folders or in a manifest, or rows of a table with a column of texts."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array, Floats, Labels
from tuner.errors import StoreError, TaskError, TunerError
from tuner.reading import kind_of, open_regular, read_text, same_form
from tuner.targets.base import SEPARATOR
from tuner.task.data.entry import Entry, EntrySource, empty_partition, no_such_data
from tuner.task.data.listing import read_listing
from tuner.task.data.readable import kept
from tuner.task.data.samples import HashedSamples
from tuner.task.data.table import LABELS, Table, is_manifest, split_column
from tuner.task.inputs.base import InputKind, Network
from tuner.task.spec import InputDefaults, InputSpec
from tuner_text import VARIABLE
from tuner_text.encoder import encoder

SUFFIXES = frozenset({".txt", ".md"})
TABLES = frozenset({".csv", ".tsv", ".jsonl"})
#: Names of columns of texts, in lower case.
TEXTS = ("text", "sentence", "message", "review", "comment", "body", "content", "question", "description", "title")
MOST_BYTES = 10_000_000
WAY_OUT = "save it as CSV, TSV or JSONL in UTF-8"
ABOUT = "Texts are read by a frozen encoder, which knows words; this small network learns on what it gives."
Listed = tuple[list[str], list[str], list[tuple[str, ...]]]


class TextSamples(HashedSamples):
    """Texts, each with the name of its file or row, encoded when a sample is asked for: by another encoder, others."""

    def __init__(self, texts: Sequence[str], names: Sequence[str], labels: Labels, encoded_by: str) -> None:
        super().__init__(labels)
        self._texts, self._names, self._encoded_by = tuple(texts), tuple(names), encoded_by

    def __len__(self) -> int:
        return len(self._texts)

    def load(self, index: int) -> Floats:
        return encoder()(self._texts[index])

    def name(self, index: int) -> str:
        return self._names[index]

    def stamp(self, index: int) -> str:
        return self.sample_id(index)

    def _content(self, index: int) -> Iterable[bytes]:
        return self._encoded_by.encode(), self._texts[index].encode()


class Texts(InputKind):
    """Texts, each as the features that its encoder gives: float32 [d]."""

    name = "text"
    suffixes = SUFFIXES
    noun = "texts"

    def entry(self, source: EntrySource) -> Entry:
        """Return the texts of files in class folders or a manifest, or of the rows of a CSV, TSV or JSONL file.

        ``file.csv#COLUMN`` names the column of the labels.
        """
        place, column = split_column(source.path)
        if kind_of(place) == "nothing":
            raise no_such_data(place, source.partition)
        is_table = kind_of(place) == "file" and not (place.suffix.lower() == ".csv" and is_manifest(place))
        texts, names, labels = _of_table(source, place, column) if is_table else _of_files(source, place)
        if not texts:
            raise empty_partition(place, source.partition, "text")
        classes, rows = source.targets.read_texts(labels, place) if labels else ((), np.zeros(len(texts), np.int64))
        return Entry(str(place), classes, rows, partial(TextSamples, texts, names, encoded_by=encoder().name))

    def claims(self, file: Path) -> bool:
        return file.suffix.lower() in TABLES and _column(next(_rows(file), {}), TEXTS) is not None

    def read(self, path: Path, spec: InputSpec) -> Array:
        """Return the features of a file's text, by the encoder that the model was trained with."""
        theirs = "".join(spec.columns)
        try:
            own = encoder()
            here = f"but the one here is {own.name}" if own.name != theirs else ""
        except TunerError as error:
            here = f"but there is none here ({error})"
        if here:
            raise TaskError(
                f"{path}: the model needs the encoder {theirs}, {here}: give the folder of that encoder by "
                f"--encoder, or in {VARIABLE}"
            )
        return own(_words(path))

    def completed(self, given: Mapping[str, Any], published: Callable[[], InputDefaults | None]) -> dict[str, Any]:  # noqa: ARG002 - for others
        """Return the fields with the encoder's name, which stands for all numbers of a sample."""
        return {**given, "columns": (encoder().name,)}

    def network(self, shape: Sequence[int], outputs: int) -> Network:
        return Network("tuner_text.torch:classifier", {"inputs": shape[0], "outputs": outputs}, about=ABOUT)

    def check_operations(self, ops: frozenset[str]) -> None:
        if ops:
            raise StoreError(f"texts are not changed at random, got {', '.join(sorted(ops))}: leave it out")


def _of_files(source: EntrySource, place: Path) -> Listed:
    """Return the texts of files, their paths and their labels."""
    files, labels, _, others = read_listing(source, place, SUFFIXES, "texts", npz=False)
    if source.check is not None:
        source.check.count(place, files, others)
        keep = source.check.readable(files, _words)
        if not any(keep):
            raise source.check.error(place)
        files, labels = kept(files, keep), kept(labels, keep)
    return list(map(_words, files)), list(map(str, files)), labels


def _words(path: Path) -> str:
    text = read_text(path, TaskError, "save it as text in UTF-8", MOST_BYTES)
    if not text.strip():
        raise TaskError(f"{path}: holds no words: write some, or remove it")
    return text


def _of_table(source: EntrySource, file: Path, label: str) -> Listed:
    """Return the texts of a table's rows, their names and their labels; these by the column of this name, if any."""
    rows = _rows(file)
    first = next(rows, None)
    if first == {}:
        raise TaskError(f"{file}: row 1 is empty: give it the columns of the others, or remove it")
    text, label = _column(first or {}, TEXTS) or "", label or _column(first or {}, LABELS) or ""
    for what, column, way_out in (("texts", text, "name it text"), ("labels", label, f"give {file.name}#COLUMN")):
        if first is not None and column not in first and (what == "texts" or source.labelled):
            raise TaskError(f"{file}: no column of {what}, only {', '.join(first)}: {way_out}")
    texts, cells = list[str](), list[str]()
    for number, row in enumerate(chain(() if first is None else [first], rows), 1):
        texts.append(_cell(row.get(text)))
        cells.append(same_form(_cell(row.get(label))))
        if not texts[-1].strip():
            raise TaskError(f"{file}: row {number} has no text: write it, or remove the row")
    names = [f"{file}:{row}" for row in range(1, len(texts) + 1)]
    table = Table((), np.empty((0, 0), np.float32), cells, [], is_timed=False, first=1)
    return texts, names, table.labels_of(file, source.targets) if source.labelled else []


def _cell(value: Any) -> str:
    """Return a cell as text; a list of JSON is several labels."""
    return SEPARATOR.join(map(_cell, value)) if isinstance(value, list) else "" if value is None else str(value)


def _column(row: Mapping[str, Any], usual: Sequence[str]) -> str | None:
    """Return the name of a column that is a usual one."""
    names = {name.strip().lower(): name for name in row}
    return next((names[name] for name in usual if name in names), None)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table by the names of its columns, as they are read."""
    try:
        with TextIOWrapper(open_regular(file), encoding="utf-8-sig", newline="") as lines:
            if file.suffix.lower() == ".jsonl":
                yield from (dict(json.loads(line)) for line in lines if line.strip())
                return
            delimiter = max(",;\t", key=lines.readline().count)
            lines.seek(0)
            csv.field_size_limit(max(MOST_BYTES, csv.field_size_limit()))
            found = csv.DictReader(lines, restval="", delimiter=delimiter, strict=True)
            for number, row in enumerate(found, 1):
                more = row.pop(None, ())  # the cells without a name
                yield row
                if any(more):  # of the first row, this is asked when the second is
                    way_out = f"put texts with {delimiter!r} in quotes"
                    raise TaskError(f"{file}: row {number} has more cells than the header: {way_out}")
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror or error}): {WAY_OUT}") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{file}: cannot be read (it is not UTF-8 text): {WAY_OUT}") from error
    except (csv.Error, TypeError, ValueError, RecursionError) as error:
        raise TaskError(f"{file}: no table of texts ({error}): {WAY_OUT}") from error


TEXT = Texts()
