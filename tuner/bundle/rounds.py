"""Rounds of training next to an exported bundle, and a pointer to the round in use.

``BUNDLE/device/current`` lists rounds, the one in use first, the one to fall back to next; the exported bundle itself
(``0000``) is always the last. A second line counts all rounds ever installed, so that no two have one name, and how
often samples were forgotten, so that no round that knows them is installed after that. The file is replaced whole:
whenever the process is killed, the old list is there or the new one. What cannot be read or used is a `BundleError`.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import BundleError
from tuner.reading import read_bytes
from tuner.untrusted import inside, reason_of, require_plain

FOLDER, CURRENT, ROUNDS, LOCK = "device", "current", "rounds", "lock"
WATCHING = "watching.lock"  # held by the process that watches the bundle
MADE = "made"  # a round that is not installed yet: trained weights and features are nowhere else
EXPORTED = "0000"
CHANGE_SECONDS = 60.0  # a change takes less; a process that holds the lock for longer is stopped
NAME = re.compile(r"[0-9]{4,9}")
MOST_POINTER_BYTES = 1000
State = tuple[tuple[str, ...], int]


def rounds_in_use(bundle: Path) -> tuple[str, ...]:
    """Return the rounds of a bundle, the one in use first, the exported bundle last."""
    return state_of(bundle)[0]


def folder_of(bundle: Path, name: str) -> Path:
    """Return the folder of a round, or the bundle itself for the exported one."""
    return bundle if name == EXPORTED else inside_device(bundle, f"{ROUNDS}/{name}")


def inside_device(bundle: Path, name: str) -> Path:
    """Return the path of a file or folder in ``BUNDLE/device``.

    Raises:
        BundleError: A link leads out of the bundle.
    """
    try:
        return inside(bundle, f"{FOLDER}/{name}")
    except OSError as error:
        raise BundleError(f"{bundle} cannot be used ({reason_of(error)}): remove {FOLDER} from it") from None


def current(bundle: Path) -> Path:
    """Return the folder in use: a round's, or the bundle itself."""
    return folder_of(bundle, rounds_in_use(bundle)[0])


def device_folder(bundle: Path) -> Path:
    """Return ``BUNDLE/device``, made if need be, readable by the user only; no link in it leads elsewhere."""
    home, rounds = inside_device(bundle, ROUNDS).parent, inside_device(bundle, ROUNDS)
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        rounds.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{home} cannot be made ({error.strerror}): the bundle's folder must be writable") from None
    try:
        require_plain(home)
        require_plain(rounds)
    except OSError as error:
        raise BundleError(
            f"{home} cannot be used ({reason_of(error)}): remove it to use the bundle as exported"
        ) from None
    return home


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Keep other processes from changing the rounds in ``BUNDLE/device``."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(home / LOCK, mode=0o600, timeout=CHANGE_SECONDS):
            yield
    except Timeout:
        raise BundleError(
            f"{home} has been locked by another process for {CHANGE_SECONDS:.0f} s: is it stopped? "
            "Let it continue, or end it"
        ) from None


def state_of(bundle: Path) -> State:
    """Return the rounds in use, and how often a round was installed or samples were forgotten."""
    pointer = inside_device(bundle, CURRENT)
    try:
        first, count = read_bytes(pointer, MOST_POINTER_BYTES).decode("ascii").splitlines()
        names = tuple(first.split())
        if names[-1:] == (EXPORTED,) and all(NAME.fullmatch(name) for name in (*names, count.zfill(4))):
            return names, int(count)
    except (FileNotFoundError, NotADirectoryError):
        return (EXPORTED,), 0
    except OSError as error:
        raise BundleError(f"{pointer} cannot be read ({reason_of(error)}): check its permissions") from None
    except ValueError:
        pass
    raise BundleError(f"{pointer} is damaged: remove it to use the bundle as exported")


def point(home: Path, names: Sequence[str], count: int) -> None:
    """Write which rounds are in use; see `state_of`."""
    from tuner.files import write_private  # as above

    write_private(home / CURRENT, f"{' '.join(names)}\n{count}\n")


def sweep(bundle: Path) -> None:
    """Remove rounds that are no longer in use, and unfinished ones of processes that were killed."""
    from tuner.files import remove_parts  # as above

    in_use = rounds_in_use(bundle)
    remove_parts(bundle / FOLDER / CURRENT)
    for path in (bundle / FOLDER / ROUNDS).iterdir():
        if path.name not in in_use:
            shutil.rmtree(path, ignore_errors=True)
