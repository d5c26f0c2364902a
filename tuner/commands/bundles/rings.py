"""What a watched bundle has kept and learned, its samples and its rounds: where it is, and how it is forgotten.

What watches bundles is a plugin; what it has kept can be forgotten without it.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from tuner.bundle.format import Bundle
from tuner.bundle.rounds import (
    EXPORTED,
    FOLDER,
    MADE,
    ROUNDS,
    device_folder,
    inside_device,
    locked,
    point,
    state_of,
    sweep,
)
from tuner.commands.bundles.held import present
from tuner.files import PART, cache_folder, cache_place, mark_changed, overwrite
from tuner.task.data.samples import content_id

#: Ending of the file of a kept sample.
SUFFIX = ".sample"
#: File that names the samples which models were trained on.
LEARNED = "learned.json"


def ring_folder(bundle: Path, *, takes: bool = False) -> Path:
    """Return the folder of a bundle's samples: in the user's cache, never in the bundle's folder.

    It belongs to the place of the bundle too: a copy has samples of its own, one that was moved those of before, which
    it `takes` where it is watched.
    """
    exported, rings = Bundle.read(bundle), cache_place() / "rings"
    same = f"{_mark(exported.name)}-{exported.identity[:16]}-"
    own = rings / f"{same}{_mark(str(bundle.resolve()))}"
    there = {f"{same}{_mark(place)}" for place in present()}
    moved = [folder for folder in rings.glob(f"{same}*") if folder.name not in there]
    found = moved[0] if len(moved) == 1 and not own.exists() else own
    return found.rename(own) if takes and found != own else found


def ring_folders(task: str) -> list[Path]:
    """Return the folders of the samples of all bundles that were made from a task, by its name."""
    return sorted((cache_folder() / "rings").glob(f"{_mark(task)}-*"))


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


def discard_made(bundle: Path) -> None:
    """Overwrite and remove what rounds have made that are not installed."""
    home = bundle / FOLDER
    for path in (home / MADE, *home.glob(f".{MADE}.*")) if home.is_dir() else ():
        discard(path)


def discard(folder: Path) -> None:
    """Overwrite and remove a folder; another process may be writing to it, and then fails."""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                overwrite(path)
    shutil.rmtree(folder, ignore_errors=True)


def _mark(text: str) -> str:
    return content_id(text.encode())[:8]
