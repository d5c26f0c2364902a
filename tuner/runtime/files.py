"""The files that a watched bundle is given: a folder that people or programs put files into, or a list of paths."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TaskError

SUFFIXES = {
    "images": frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif"}),
    "arrays": frozenset({".npy"}),
    "signals": frozenset({".npy"}),
}
Mark = tuple[int, str]


@dataclass(frozen=True, slots=True, order=True)
class Given:
    """A file to answer; files are taken in the order in which they came.

    Attributes:
        changed_ns: Change time of the file, which copying with its old date does not hide.
        path: Of the file.
        label: The class folder it lies in; None where it lies in none.
    """

    changed_ns: int
    path: Path
    label: str | None = None

    @property
    def mark(self) -> Mark:
        """What tells this file, as it is now, from all others."""
        return self.changed_ns, str(self.path)


def given_files(folder: Path, kind: str) -> list[Given]:
    """Return the files of a folder, and of the class folders in it, the first to come first.

    Args:
        folder: Files in it have no label; those in a folder of it have its name as their label.
        kind: ``images``, ``arrays`` or ``signals``.

    Raises:
        TaskError: The folder is not there or cannot be read.
    """
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise TaskError(f"--samples {folder} cannot be read ({error.strerror}): give a folder of files") from None
    classes = [one for one in inside if one.is_dir() and not one.name.startswith(".")]
    found: list[tuple[Path, str | None]] = [(path, None) for path in inside]
    found += [(path, one.name) for one in classes for path in _inside(one)]
    return sorted(_stamped((path, label) for path, label in found if path.suffix.lower() in SUFFIXES[kind]))


def listed_files(lines: Iterable[str]) -> Iterator[Given]:
    """Return a file for each line of a stream: a path, or a path, a tab and a label."""
    for line in lines:
        path, _, label = line.rstrip("\n").partition("\t")
        if path:
            yield Given(0, Path(path), label or None)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it has gone since it was listed
        return []


def _stamped(found: Iterable[tuple[Path, str | None]]) -> Iterator[Given]:
    for path, label in found:
        if path.name.startswith("."):
            continue
        try:
            yield Given(path.stat().st_ctime_ns, path, label)
        except OSError:  # it has gone since it was listed
            continue
