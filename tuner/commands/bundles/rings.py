"""What a watched bundle has kept and learned, its samples and its rounds: where it is, and how it is removed.

One plugin watches bundles, and another one, which does without it, forgets what was kept.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from tuner.bundle.format import Bundle
from tuner.bundle.rounds import FOLDER, MADE
from tuner.commands.bundles.held import present
from tuner.files import cache_place, overwrite
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
    same = f"{mark(exported.name)}-{exported.identity[:16]}-"
    own = rings / f"{same}{mark(str(bundle.resolve()))}"
    there = {f"{same}{mark(place)}" for place in present()}
    moved = [folder for folder in rings.glob(f"{same}*") if folder.name not in there]
    found = moved[0] if len(moved) == 1 and not own.exists() else own
    return found.rename(own) if takes and found != own else found


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


def mark(text: str) -> str:
    """Return a short name of a text, for names of folders."""
    return content_id(text.encode())[:8]
