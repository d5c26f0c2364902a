"""The lock of a run's folder: one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tuner.errors import RunError
from tuner.files import private_folder
from tuner.results.folder import FILE

LOCK = "lock"


@contextmanager
def lock_folder(folder: Path, *, resume: bool) -> Iterator[bool]:
    """Lock a run's folder, made if it does not exist; yield whether a run is in it.

    Args:
        folder: The run's folder.
        resume: Whether it may hold a run.

    Raises:
        RunError: It cannot be made, holds something else or is in use; or it holds a run and `resume` is false.
    """
    try:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    except OSError as error:
        raise RunError(f"{folder} cannot be read ({error.strerror or error}): give another --out") from None
    if resume and not folder.exists():
        raise RunError(f"{folder} does not exist, so there is no run to continue: leave --resume out to begin one")
    if FILE not in names and not all(_is_before_any_trial(name) for name in names):
        raise RunError(f"{folder} is not empty and is not a run: give another --out")
    lock = FileLock(private_folder(folder, RunError, names) / LOCK, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunError(f"{folder} is in use by another `tuner run`: wait for it, or give another --out") from None
    except OSError as error:
        raise RunError(f"{folder} cannot be written ({error.strerror or error}): give another --out") from None
    try:
        begun = (folder / FILE).exists()
        if begun and not resume:
            raise RunError(f"{folder} holds a run already: add --resume to continue it, or give another --out")
        yield begun
    finally:
        lock.release()


def _is_before_any_trial(name: str) -> bool:
    """Return whether a command that ends before its first trial leaves such a file."""
    return name == LOCK or (name.startswith(f"{FILE}.") and name.endswith(".part"))
