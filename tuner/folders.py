"""Where this device keeps what outlives a run, and folders that are private to the user."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from tuner.errors import BudgetError, RunError, StoreError, TunerError

if TYPE_CHECKING:
    from tuner.store.store import Store

OTHERS = 0o077
CACHED = frozenset({"store", "rates", "pretrained", "prefix"})
STORED = frozenset({"lock", "kinds", "scales"})


def private_folder(folder: Path, kind: type[TunerError] = RunError, ours: Collection[str] = ()) -> Path:
    """Make a folder that only the user can read; one that is there becomes so if nothing of anyone else's is in it.

    Args:
        folder: To make, with its parents.
        kind: Of error that is raised.
        ours: Names that may be in it; where there are others, its mode is the user's own choice.

    Raises:
        TunerError: It cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        is_open = found.st_mode & OTHERS and found.st_uid == os.geteuid()
        if is_open and all(one.name in ours for one in folder.iterdir()):
            folder.chmod(0o700)
    except OSError as error:
        raise kind(f"{folder} cannot be a folder of tuner's ({error.strerror or error}): give another place") from None
    return folder


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/tuner`` (or the platform's own), made private to the user.

    Raises:
        StoreError: It cannot be made.
    """
    folder = Path(os.environ.get("TUNER_CACHE") or platformdirs.user_cache_dir("tuner"))
    return private_folder(folder, StoreError, CACHED)


def open_store(folder: Path | None = None, cap_bytes: int | None = None, limit: str = "") -> "Store":
    """Open the feature store in a folder, the user's own by default.

    Args:
        folder: Of the store.
        cap_bytes: Of all its files.
        limit: What the cap comes from, for the message.

    Raises:
        StoreError: The folder cannot be used.
        BudgetError: What it holds cannot be brought under the cap.
    """
    from tuner.store.records import StoreFull
    from tuner.store.store import Store

    folder = private_folder(folder or cache_folder() / "store", StoreError, STORED)
    try:
        return Store(folder, cap_bytes)
    except StoreFull:
        raise BudgetError(f"{limit} is less than what has to stay in {folder}: give more") from None
    except OSError as error:
        raise StoreError(f"{folder} cannot be a store ({error.strerror or error}): give another place") from None
