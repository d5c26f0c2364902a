"""The samples that a watched bundle has kept: where they are, and how they are forgotten.

What watches bundles is a plugin; what it has kept can be forgotten without it.
"""

from contextlib import suppress
from pathlib import Path

from tuner.bundle.format import Bundle
from tuner.files import PART, cache_folder, mark_changed, overwrite
from tuner.task.data.samples import content_id

#: Ending of the file of a kept sample.
SUFFIX = ".sample"
#: File that names the samples which models were trained on.
LEARNED = "learned.json"


def ring_folder(bundle: Path) -> Path:
    """Return the folder of a bundle's samples: in the user's cache, never in the bundle's folder.

    It belongs to the place of the bundle too: a copy, perhaps of another user of the device, has samples of its own.
    """
    exported = Bundle.read(bundle)
    mark = content_id(str(bundle.resolve()).encode())[:8]
    return cache_folder() / "rings" / f"{_task_mark(exported.name)}-{exported.identity[:16]}-{mark}"


def ring_folders(task: str) -> list[Path]:
    """Return the folders of the samples of all bundles that were made from a task, by its name."""
    return sorted((cache_folder() / "rings").glob(f"{_task_mark(task)}-*"))


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


def _task_mark(name: str) -> str:
    return content_id(name.encode())[:8]
