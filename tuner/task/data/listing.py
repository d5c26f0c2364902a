"""Files of a folder or of a CSV manifest, with their labels."""

import csv
import io
from pathlib import Path

from tuner.errors import TaskError
from tuner.reading import kind_of, path_from, read_text, text_from
from tuner.targets import Targets

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif"})
MOST_MANIFEST_BYTES = 64_000_000


def read_folder(
    folder: Path, suffixes: frozenset[str] = IMAGE_SUFFIXES, noun: str = "images"
) -> tuple[list[Path], list[tuple[str, ...]]]:
    """List the files of class folders, and the labels of each.

    Args:
        folder: Folder of one folder per class.
        suffixes: Endings of the files that count, in lower case.
        noun: Word for the files in messages.

    Raises:
        TaskError: There are no class folders, or one is empty.
    """
    files: list[Path] = []
    labels: list[tuple[str, ...]] = []
    classes = sorted(child for child in folder.iterdir() if child.is_dir() and not _is_hidden(child))
    if not classes:
        raise TaskError(
            f"{folder}: no class folders in it: put the {noun} of each class into a folder named after the class"
        )
    for class_folder in classes:
        members = sorted(file for file in class_folder.iterdir() if _counts(file, suffixes))
        if not members:
            raise TaskError(f"{class_folder}: no {noun} ({', '.join(sorted(suffixes))}) in it: add some or remove it")
        files += members
        labels += [(text_from(class_folder.name),)] * len(members)
    return files, labels


def images_below(folder: Path) -> list[Path]:
    """Return every image anywhere below a folder, sorted."""
    return sorted(file for file in folder.rglob("*") if _counts(file, IMAGE_SUFFIXES))


def read_manifest(
    path: Path, kind: Targets, *, sessions: bool = False
) -> tuple[list[Path], list[tuple[str, ...]], list[str]]:
    """List the files of a manifest, the labels of each, and its session.

    Args:
        path: A CSV file with header ``path,label`` or ``path,label,session``; paths are relative to it.
        kind: What a sample's label is; several have ``|`` between them.
        sessions: Whether the third column is allowed; a session is empty without it.

    Raises:
        TaskError: A line does not match the header, or names no file.
    """
    files: list[Path] = []
    labels: list[tuple[str, ...]] = []
    file_sessions: list[str] = []
    way_out = "save it as CSV in UTF-8 with header path,label"
    text = read_text(path, TaskError, way_out, MOST_MANIFEST_BYTES)
    try:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = _header(path, next(rows, []), sessions=sessions)
        for row in rows:
            if row:
                files.append(_listed_file(path, rows.line_num, row, header))
                labels.append(_listed_labels(path, rows.line_num, row[1], kind))
                file_sessions.append("".join(row[2:]).strip())
    except csv.Error as error:
        raise TaskError(f"{path}: not a CSV manifest ({error}): {way_out}") from error
    return files, labels, file_sessions


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _counts(file: Path, suffixes: frozenset[str]) -> bool:
    return file.suffix.lower() in suffixes and not _is_hidden(file) and kind_of(file) == "file"


def _header(path: Path, cells: list[str], *, sessions: bool) -> list[str]:
    header = [cell.strip() for cell in cells]
    if header != ["path", "label"] and not (sessions and header == ["path", "label", "session"]):
        allowed = "'path,label' or 'path,label,session'" if sessions else "'path,label'"
        raise TaskError(f"{path}: the first line must be {allowed}, got {','.join(header)!r}")
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


def _listed_labels(path: Path, line: int, cell: str, kind: Targets) -> tuple[str, ...]:
    labels = tuple(part.strip() for part in cell.split("|") if part.strip())
    kind.check_cell(labels, cell, f"{path}:{line}")
    return labels
