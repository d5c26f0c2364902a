"""Files of a folder or of a CSV manifest, with their labels."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tuner.errors import TaskError
from tuner.reading import (
    HEIC_SUFFIXES,
    READS_HEIC,
    files_below,
    is_hidden,
    kind_of,
    kinds_of,
    path_from,
    read_text,
    same_form,
    text_from,
)
from tuner.targets import Targets
from tuner.targets.base import SEPARATOR
from tuner.task.data.entry import EntrySource, unreadable

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".webp", ".gif", ".tif", ".tiff", ".avif"}
    | {".jp2", ".j2k", ".jpx"}
    | (HEIC_SUFFIXES if READS_HEIC else set())
)
MOST_MANIFEST_BYTES = 64_000_000


class Listing(NamedTuple):
    """Files, the labels of each, its session, which is empty where none is known, and files that do not count."""

    files: list[Path]
    labels: list[tuple[str, ...]]
    sessions: list[str]
    left_out: list[Path]


def read_listing(source: EntrySource, place: Path, suffixes: frozenset[str], noun: str, *, npz: bool = True) -> Listing:
    """List the files of class folders, or of a ``.csv`` manifest.

    Args:
        source: The entry.
        place: The folder or manifest.
        suffixes: Endings of the files that count in folders, in lower case.
        noun: Word for the files in messages.
        npz: Whether the entry could have been an ``.npz``, for messages.

    Raises:
        TaskError: It is neither; there are no class folders, or one is empty; a line of the manifest is wrong.
    """
    try:
        if kind_of(place) == "folder":
            return _same_forms(source, place, _read_folder(place, suffixes, noun))
        if place.suffix.lower() == ".csv":
            return _same_forms(source, place, _read_manifest(place, source.targets))
    except OSError as error:
        raise unreadable(error, place) from error
    places = "an .npz, a folder of class folders" if npz else "a folder of class folders"
    raise TaskError(f"{place}: {noun} must be in {places} or a .csv manifest, got {place.suffix!r}")


def _same_forms(source: EntrySource, place: Path, listing: Listing) -> Listing:
    """Return a listing with its labels in Unicode's composed form, and note those that were in another."""
    labels = [tuple(dict.fromkeys(map(same_form, of_sample))) for of_sample in listing.labels]
    others = sorted({name for of_sample in listing.labels for name in of_sample if name != same_form(name)})
    if others and source.check is not None:
        source.check.findings.append(
            f"note: {text_from(place)}: {', '.join(map(same_form, others))}: written with separate accents (Unicode "
            "NFD), as macOS does; each is one class with the name in NFC that looks alike"
        )
    return listing._replace(labels=labels)


def _read_folder(folder: Path, suffixes: frozenset[str], noun: str) -> Listing:
    listing = Listing([], [], [], [])
    children = sorted(child for child in folder.iterdir() if not is_hidden(child))
    classes = [child for child in children if child.is_dir()]
    listing.left_out.extend(child for child in children if _counts(child, suffixes))
    if not classes:
        raise TaskError(
            f"{folder}: no class folders in it: put the {noun} of each class into a folder named after the class"
        )
    for class_folder in classes:
        members, others = divided(files_below(class_folder), suffixes)
        if not members:
            there = f"; it holds {kinds_of(others)}" if others else ""
            raise TaskError(
                f"{class_folder}: no {noun} ({', '.join(sorted(suffixes))}) in it{there}: add some or remove it"
            )
        listing.files.extend(members)
        listing.left_out.extend(others)
        listing.labels.extend([(text_from(class_folder.name),)] * len(members))
    listing.sessions.extend([""] * len(listing.files))
    return listing


def divided(files: Iterable[Path], suffixes: frozenset[str]) -> tuple[list[Path], list[Path]]:
    """Return the files that count, by their endings, and the others."""
    counted, others = list[Path](), list[Path]()
    for file in files:
        (counted if _counts(file, suffixes) else others).append(file)
    return counted, others


def _read_manifest(path: Path, kind: Targets) -> Listing:
    """Read lines of ``path,label`` or ``path,label,session``; paths are relative to the file."""
    listing = Listing([], [], [], [])
    way_out = "save it as CSV in UTF-8 with header path,label"
    text = read_text(path, TaskError, way_out, MOST_MANIFEST_BYTES)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = _header(path, next(rows, []))
        for row in rows:
            if row:
                listing.files.append(_listed_file(path, rows.line_num, row, header))
                labels = tuple(part.strip() for part in row[1].split(SEPARATOR) if part.strip())
                kind.check_cell(labels, row[1], f"{path}:{rows.line_num}")
                listing.labels.append(labels)
                listing.sessions.append("".join(row[2:]).strip())
    except csv.Error as error:
        raise TaskError(f"{path}: not a CSV manifest ({error}): {way_out}") from error
    return listing


def _counts(file: Path, suffixes: frozenset[str]) -> bool:
    return file.suffix.lower() in suffixes and kind_of(file) == "file"


def _header(path: Path, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    if header not in (["path", "label"], ["path", "label", "session"]):
        got = repr(",".join(header))
        raise TaskError(f"{path}: the first line must be 'path,label' or 'path,label,session', got {got}")
    return header


def _listed_file(path: Path, line: int, row: list[str], header: list[str]) -> Path:
    if len(row) != len(header):
        raise TaskError(
            f"{path}:{line}: a line must have {','.join(header)}, got {len(row)} cells: quote a path with commas"
        )
    file = path.parent / path_from(row[0].strip())
    if kind_of(file) != "file":
        raise TaskError(f"{path}:{line}: no such file {file}: paths are relative to the manifest")
    return file
