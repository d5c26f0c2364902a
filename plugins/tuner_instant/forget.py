"""Runs without PyTorch keep features of all their samples: where these are, and how they are forgotten."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tuner.errors import RunError, TunerError
from tuner.files import cache_folder, cache_place, mark_changed, overwrite, write_private
from tuner.reading import kind_of
from tuner.results.folder import lock_folder, read_run
from tuner.untrusted import inside
from tuner_instant.features import FILE

#: Folder in the cache with a file for each run, which holds the run's place.
RUNS = "solved"


def note_run(folder: Path) -> None:
    """Remember where a run is, so that forgetting its samples finds it; but not where it is moved or copied to."""
    place = os.fsencode(folder.resolve())
    with suppress(OSError, TunerError):
        path = cache_folder() / RUNS / hashlib.blake2b(place, digest_size=16).hexdigest()
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, place)


def forget(task: str) -> int:
    """Overwrite and remove the features that runs of some data keep; their trials can then be read, but not exported.

    Args:
        task: The data, or the task file, that the runs were made from; or the folder of one run.

    Returns:
        The number of samples that they were of.

    Raises:
        RunError: A run is in use.
    """
    return sum(map(_forgotten, dict.fromkeys(_runs_of(Path(task)))))


def _forgotten(folder: Path) -> int:
    with lock_folder(folder, resume=True):
        path, samples = inside(folder, FILE), read_run(folder).spent.prefix_samples
        overwrite(path)
        path.unlink()
        mark_changed(folder)
        return samples


def _runs_of(data: Path) -> Iterator[Path]:
    """Yield the folders of runs that keep features of some data; notes of runs that are gone are removed."""
    if kind_of(data / FILE) == "file":
        yield data.resolve()
    notes = cache_place() / RUNS
    for note in sorted(notes.iterdir()) if notes.is_dir() else ():
        folder = Path(os.fsdecode(note.read_bytes()))
        if kind_of(folder / FILE) != "file":
            if folder.parent.is_dir():  # a disk that is not there now may come back
                note.unlink()
            continue
        with suppress(RunError):  # of what else is there now
            if _file_of(Path(read_run(folder).config.task)) == _file_of(data):
                yield folder


def _file_of(data: Path) -> Path:
    """Return the task file of data where they have one; else the data's own place."""
    file = data.resolve() / "task.toml"
    return file if kind_of(file) == "file" else data.resolve()
