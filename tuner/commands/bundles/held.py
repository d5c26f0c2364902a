"""Where bundles are that hold features of the user's samples, or that are watched."""

import json
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from tuner.bundle.format import FILE
from tuner.errors import TunerError
from tuner.files import cache_folder, cache_place, write_private
from tuner.untrusted import read_json

#: File in the cache that lists folders of bundles.
BUNDLES = "bundles"


def note_bundle(folder: Path, task: str = "") -> None:
    """Remember where a bundle is, and of which task file, so that forgetting its task finds it, but not its copies."""
    with suppress(OSError, TunerError), FileLock(cache_folder() / f"{BUNDLES}.lock", mode=0o600):
        place, there = str(folder.resolve()), present()
        made_of = str(Path(task).resolve()) if task and Path(task).is_file() else there.get(place, "")
        write_private(cache_folder() / BUNDLES, json.dumps({**there, place: made_of}))


def noted() -> dict[str, str]:
    """Return the folders of bundles that were made or watched, and the task file of each, where it is known."""
    try:
        paths = read_json(cache_place() / BUNDLES)
    except (OSError, ValueError):
        return {}
    content = paths.items() if isinstance(paths, dict) else ()
    return {path: of for path, of in content if isinstance(path, str) and isinstance(of, str)}


def present() -> dict[str, str]:
    """Return those of `noted` that hold a bundle, or whose disk is not there: it may come back."""
    return {at: of for at, of in noted().items() if (Path(at) / FILE).is_file() or not Path(at).parent.is_dir()}
