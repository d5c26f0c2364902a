"""Bundles that hold features of the user's samples, and what watched ones have kept: how these are removed."""

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
from tuner.bundle.rounds import EXPORTED, ROUNDS, WATCHING, device_folder, inside_device, locked, point, state_of, sweep
from tuner.commands.bundles.held import noted
from tuner.commands.bundles.rings import LEARNED, SUFFIX, discard, discard_made, mark
from tuner.errors import BundleError, TunerError
from tuner.files import PART, cache_folder, mark_changed, overwrite, private_file, write_private
from tuner.runtime.train.files import OWN, SOLVED, replay_of
from tuner.runtime.train.solved import SolvedFile
from tuner.untrusted import inside

#: Ending of what takes a file's place in a bundle; that of ``bundle.json`` is written last, and then all are put there.
STRIPPED = ".stripped"


@dataclass(frozen=True, slots=True)
class HeldSamples:
    """A bundle as it was exported, and of how many of the user's samples it holds features."""

    bundle: str
    samples: int


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


def ring_folders(task: str) -> list[Path]:
    """Return the folders of the samples of all bundles that were made from a task, by its name."""
    return sorted((cache_folder() / "rings").glob(f"{mark(task)}-*"))


def clear_ring(folder: Path) -> int:
    """Overwrite and remove every sample in a folder; return how many there were."""
    paths = list(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if path.name.endswith((SUFFIX, PART, LEARNED)):
            with suppress(FileNotFoundError):
                overwrite(path)
                path.unlink()
                mark_changed(folder)
    return sum(path.name.endswith(SUFFIX) for path in paths)


def forget_rounds(bundle: Path, *, keep: bool = False) -> int:
    """Use a bundle as it was exported again, and overwrite and remove every round; return how many there were.

    A round that is training is not installed any more, and what it or a killed one has made is overwritten and removed.

    Args:
        bundle: Folder of the bundle as it was exported.
        keep: Whether rounds that are installed stay: those of exits hold no sample's features.
    """
    home = inside_device(bundle, ROUNDS).parent
    if not home.is_dir():
        return 0
    with locked(device_folder(bundle)):
        names, count = state_of(bundle)
        point(home, names if keep else (EXPORTED,), count + 1)
        for path in () if keep else (home / ROUNDS).iterdir():
            discard(path)
        sweep(bundle)
        discard_made(bundle)
    return 0 if keep else len(names) - 1
