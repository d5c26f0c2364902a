"""Where a bundle lives on: rounds beside what was exported, and a pointer to the one in use.

``BUNDLE/device/current`` lists rounds, the one in use first, the one to fall back to next; the exported bundle itself
(``0000``) is always the last. A second line counts the rounds there have been, so that no two have one name. The file
is replaced whole, so that a kill at any moment leaves the old list or the new.
"""

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.errors import BundleError

FOLDER, CURRENT, ROUNDS, LOCK = "device", "current", "rounds", "lock"
EXPORTED = "0000"
KEPT = 2  # rounds: the one in use, and the last good one
NAME = re.compile(r"\d{4,}")


def standing(bundle: Path) -> tuple[str, ...]:
    """Return the rounds of a bundle, the one in use first, the exported bundle last.

    Raises:
        BundleError: The list cannot be read.
    """
    return _read(bundle)[0]


def folder_of(bundle: Path, name: str) -> Path:
    """Return where a round lies, or the bundle itself for the exported one."""
    return bundle if name == EXPORTED else bundle / FOLDER / ROUNDS / name


def current(bundle: Path) -> Path:
    """Return the folder in use: a round's, or the bundle itself.

    Raises:
        BundleError: The list of rounds cannot be read.
    """
    return folder_of(bundle, standing(bundle)[0])


def place(bundle: Path, made: Path) -> str:
    """Copy a new bundle in as a round, make it the one in use, and return its name.

    Raises:
        OSError: The disk is full or cannot be written; the round in use stays.
    """
    from filelock import FileLock

    home = prepared(bundle)
    with FileLock(home / LOCK):
        _sweep(bundle)
        names, count = _read(bundle)
        name = f"{count + 1:04d}"
        part = home / ROUNDS / f".{name}.part"
        try:
            shutil.copytree(made, part, ignore=shutil.ignore_patterns(FOLDER))
            for path in (part, *part.rglob("*")):
                path.chmod(0o700 if path.is_dir() else 0o600)
                _flush(path)
            part.rename(home / ROUNDS / name)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        _flush(home / ROUNDS)
        older = [one for one in names if one != EXPORTED][: KEPT - 1]
        _point(home, (name, *older, EXPORTED), count + 1)
        _sweep(bundle)
    return name


def roll_back(bundle: Path) -> tuple[str, str]:
    """Leave the round in use for the one before it; return both names.

    Raises:
        BundleError: The bundle is in use as it was exported.
    """
    from filelock import FileLock

    home = prepared(bundle)
    with FileLock(home / LOCK):
        (gone, *rest), count = _read(bundle)
        if not rest:
            raise BundleError(f"{bundle} is in use as it was exported: there is no earlier round to go back to")
        _point(home, rest, count)
        _sweep(bundle)
    return gone, rest[0]


def prepared(bundle: Path) -> Path:
    """Return ``BUNDLE/device``, made if need be, readable by the user only.

    Raises:
        BundleError: It cannot be made.
    """
    home = bundle / FOLDER
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / ROUNDS).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{home} cannot be made ({error.strerror}): the bundle's folder has to be writable") from None
    return home


def write_whole(path: Path, text: str) -> None:
    """Write a private file whole or not at all, and wait until the disk has it.

    Raises:
        OSError: The disk is full or cannot be written; what was there stays.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def _read(bundle: Path) -> tuple[tuple[str, ...], int]:
    """Return the rounds in use, and how many there have been."""
    pointer = bundle / FOLDER / CURRENT
    try:
        first, count = pointer.read_text(encoding="utf-8").splitlines()
        names = tuple(first.split())
        if names[-1:] == (EXPORTED,) and all(NAME.fullmatch(name) for name in names):
            return names, int(count)
    except (FileNotFoundError, NotADirectoryError):
        return (EXPORTED,), 0
    except OSError as error:
        raise BundleError(f"{pointer} cannot be read ({error.strerror}): check its permissions") from None
    except ValueError:
        pass
    raise BundleError(f"{pointer} is damaged: remove it to use the bundle as exported")


def _point(home: Path, names: Sequence[str], count: int) -> None:
    write_whole(home / CURRENT, f"{' '.join(names)}\n{count}\n")


def _sweep(bundle: Path) -> None:
    """Remove rounds that are no longer kept, and what a kill left half made."""
    kept = standing(bundle)
    for path in (bundle / FOLDER / ROUNDS).iterdir():
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
