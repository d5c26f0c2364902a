"""Bundles that hold features of the user's samples: where they are, and how these are removed from them."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from tuner.bundle.format import FILE, UNKNOWN, Bundle
from tuner.bundle.rounds import WATCHING, device_folder
from tuner.errors import BundleError, TunerError
from tuner.files import cache_folder, overwrite, write_private
from tuner.runtime.train.files import OWN, SOLVED, replay_of
from tuner.runtime.train.solved import SolvedFile
from tuner.untrusted import read_json

#: File in the cache that lists folders of bundles.
BUNDLES = "bundles"


@dataclass(frozen=True, slots=True)
class HeldSamples:
    """A bundle as it was exported, and of how many of the user's samples it holds features."""

    bundle: str
    samples: int


def note_bundle(folder: Path) -> None:
    """Remember where a bundle is, so that forgetting its task finds it; a copy that was made by hand is not found."""
    with suppress(OSError, TunerError):  # of a full disk, or a home that cannot be written: the bundle is there
        known = [path for path in _noted() if (Path(path) / FILE).is_file()]
        write_private(cache_folder() / BUNDLES, json.dumps(list(dict.fromkeys([*known, str(folder.resolve())]))))


def noted_bundles(task: str) -> Iterator[Path]:
    """Yield the folders of bundles that were made from a task, by its name, as far as they are there."""
    for path in map(Path, _noted()):
        with suppress(TunerError):
            if Bundle.read(path).name == task:
                yield path


def _noted() -> list[str]:
    try:
        paths = read_json(cache_folder() / BUNDLES)
    except (OSError, ValueError):
        return []
    return [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []


def held_by(folder: Path) -> HeldSamples:
    """Return what a bundle as it was exported holds of the user's samples."""
    train = Bundle.read(folder).info.train
    return HeldSamples(str(folder), (train.own_samples if train else None) or 0)


def strip(folder: Path) -> None:
    """Overwrite the features of the user's samples in a bundle as it was exported; its weights have learned from them.

    Its identity changes. A kill before the last file is written leaves a bundle that is refused.

    Raises:
        BundleError: It is being watched, or it cannot be read.
        OSError: It cannot be written.
    """
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
            for name in {*replaced, UNKNOWN}.intersection(bundle.info.files):
                overwrite(folder / name)
            for name, content in replaced.items():
                write_private(folder / name, content)
            write_private(folder / FILE, json.dumps(info.to_dict(), indent=1))
            (folder / UNKNOWN).unlink(missing_ok=True)
    except Timeout:
        raise BundleError(f"{folder} is being watched by another process: stop that one first") from None
