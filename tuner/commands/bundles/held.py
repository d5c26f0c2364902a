"""Bundles that hold features of the user's samples: where they are, and how these are removed from them."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from tuner.bundle.format import FILE, UNKNOWN, Bundle, read_info
from tuner.bundle.rounds import WATCHING, device_folder
from tuner.errors import BundleError, TunerError
from tuner.files import cache_folder, cache_place, overwrite, private_file, write_private
from tuner.runtime.train.files import OWN, SOLVED, replay_of
from tuner.runtime.train.solved import SolvedFile
from tuner.untrusted import inside, read_json

#: File in the cache that lists folders of bundles.
BUNDLES = "bundles"
#: Ending of what takes a file's place in a bundle; that of ``bundle.json`` is written last, and then all are put there.
STRIPPED = ".stripped"


@dataclass(frozen=True, slots=True)
class HeldSamples:
    """A bundle as it was exported, and of how many of the user's samples it holds features."""

    bundle: str
    samples: int


def note_bundle(folder: Path, task: str = "") -> None:
    """Remember where a bundle is, and of which task file, so that forgetting its task finds it, but not its copies."""
    with suppress(OSError, TunerError), FileLock(cache_folder() / f"{BUNDLES}.lock", mode=0o600):
        place, there = str(folder.resolve()), present()
        made_of = str(Path(task).resolve()) if task and Path(task).is_file() else there.get(place, "")
        write_private(cache_folder() / BUNDLES, json.dumps({**there, place: made_of}))


def noted_bundles(name: str, task: str) -> Iterator[Path]:
    """Yield the folders of bundles of a task, by its name, as far as they are there.

    Two tasks may have one name: bundles that are known to be of another task file are not this one's.
    """
    for path, of in noted().items():
        own, other = Path(task).resolve(), Path(of)
        if of and other.is_file() and own.exists() and other not in {own, own / "task.toml"}:
            continue
        with suppress(TunerError):
            if Bundle.read(Path(path)).name == name:
                yield Path(path)


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


def held_by(folder: Path) -> HeldSamples:
    """Return what a bundle as it was exported holds of the user's samples."""
    train = Bundle.read(folder).info.train
    return HeldSamples(str(folder), (train.own_samples if train else None) or 0)


def strip(folder: Path) -> None:
    """Overwrite the features of the user's samples in a bundle as it was exported; its weights have learned from them.

    Its identity changes. A kill in between may leave a bundle that is refused: the next call completes it.

    Raises:
        BundleError: It is being watched, or it cannot be read.
        OSError: It cannot be written.
    """
    complete(folder)
    bundle = Bundle.read(folder)
    if not held_by(folder).samples or bundle.info.train is None:
        return
    replaced = dict[str, bytes]()
    if SOLVED in bundle.info.files:
        solved = SolvedFile.load(bundle)
        replaced[SOLVED] = replace(solved, codes=solved.codes[:0], labels=solved.labels[:0]).content()
    if OWN in bundle.info.files:
        replaced[OWN] = replay_of(bundle, OWN).select(np.arange(0)).content()
    try:
        with FileLock(device_folder(folder) / WATCHING, mode=0o600, timeout=0):
            files = {**bundle.info.files, **{name: sha256(content).hexdigest() for name, content in replaced.items()}}
            files.pop(UNKNOWN, None)  # it measures the distance to these samples
            info = replace(bundle.info, files=files, unknown=None, train=replace(bundle.info.train, own_samples=0))
            for name, content in {**replaced, FILE: json.dumps(info.to_dict(), indent=1).encode()}.items():
                write_private(folder / f"{name}{STRIPPED}", content)
            complete(folder)
    except Timeout:
        raise BundleError(f"{folder} is being watched by another process: stop that one first") from None


def complete(folder: Path) -> None:
    """Put in place what `strip` has written, where it was killed before that; a `BundleError` if it is damaged."""
    if not (folder / f"{FILE}{STRIPPED}").exists():
        return
    if UNKNOWN not in read_info(folder, f"{FILE}{STRIPPED}").files and (folder / UNKNOWN).exists():
        overwrite(inside(folder, UNKNOWN))
        (folder / UNKNOWN).unlink()
    for name in (SOLVED, OWN, FILE):
        if (part := inside(folder, f"{name}{STRIPPED}")).is_file():
            _replace(inside(folder, name), part.read_bytes())
            part.unlink()


def _replace(path: Path, content: bytes) -> None:
    """Put a file in another's place, which others may read if they could, and overwrite what was there."""
    with path.open("r+b") as old:
        before = os.fstat(old.fileno())
        with private_file(path, mode=stat.S_IMODE(before.st_mode)) as part:
            part.write_bytes(content)
        old.write(bytes(before.st_size))
        old.flush()
        os.fsync(old.fileno())
