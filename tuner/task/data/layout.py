"""Where a folder of photos keeps its training, validation and test data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TaskError
from tuner.reading import files_below, is_hidden, kind_of, kinds_of
from tuner.task.data.listing import IMAGE_SUFFIXES, images_below

TRAIN = "train"
VALIDATION = ("val", "valid", "validation")
TEST = "test"
ARRAYS = frozenset({".npy", ".npz"})
MOST_LOOKED_AT = 1000  # files, to say what a folder holds instead of photos
BY_HAND = "write its task.toml by hand, as docs/tasks.md describes"


@dataclass(frozen=True, slots=True)
class PhotoFolders:
    """Folders of class folders; without `val`, some of `train` are to be held out."""

    train: Path
    val: Path | None = None
    test: Path | None = None

    @property
    def name(self) -> str:
        """Name of the data: of the folder, or of the one that ``train`` is in."""
        folder = self.train.resolve()
        return folder.parent.name if folder.name == TRAIN else folder.name


def find_photos(folder: Path) -> PhotoFolders:
    """Return where a folder's training, validation and test photos are.

    The folder holds ``train`` and maybe ``val`` and ``test``; or is such a ``train``; or holds the class folders.

    Raises:
        TaskError: It is no folder, or holds no class folders of photos.
    """
    if kind_of(folder) != "folder":
        what = "no such folder" if kind_of(folder) == "nothing" else "not a folder"
        raise TaskError(f"{folder}: {what}: give the folder of your photos, with a folder for each class in it")
    try:
        train = folder / TRAIN
        inside = folder if _has_classes(train) else folder.parent if folder.resolve().name == TRAIN else None
        if inside is None:
            _check_classes(folder)
            return PhotoFolders(folder)
        train = train if inside == folder else folder
        _check_classes(train)
        val = next((inside / name for name in VALIDATION if _has_classes(inside / name)), None)
        return PhotoFolders(train, val, inside / TEST if _has_classes(inside / TEST) else None)
    except OSError as error:
        raise TaskError(f"{error.filename}: cannot be read ({error.strerror}): check its permissions") from None


def _classes(folder: Path) -> Iterator[Path]:
    return (child for child in folder.iterdir() if not is_hidden(child) and kind_of(child) == "folder")


def _has_classes(folder: Path) -> bool:
    return kind_of(folder) == "folder" and any(_classes(folder))


def _check_classes(folder: Path) -> None:
    """Check that there are photos in class folders; a `TaskError` says what is there instead.

    Where they are all deeper, the folders may be years or partitions: a single one is no class folder.
    """
    classes = [child for child in _classes(folder) if images_below(child)]
    if len(classes) > 1 or any(map(_photos, classes)):
        return
    if photos := _photos(folder):
        raise TaskError(
            f"{folder}: holds {photos:,} photos, but no folder for each class: put the photos of each class into a "
            "folder named after it, such as hat/1.jpg"
        )
    below = [path for path, _ in zip(files_below(folder), range(MOST_LOOKED_AT), strict=False)]
    if any(path.suffix.lower() in ARRAYS for path in below):
        raise TaskError(f"{folder}: holds arrays or signals ({', '.join(sorted(ARRAYS))}), not photos: {BY_HAND}")
    if classes:
        raise TaskError(
            f"{folder}: the photos are deeper than one folder below it: give the folder that holds the class folders"
        )
    there = kinds_of(path for path in below if kind_of(path) == "file")
    raise TaskError(
        f"{folder}: holds no photos ({', '.join(sorted(IMAGE_SUFFIXES))}){f', but {there}' if there else ''}: "
        "give the folder of your photos"
    )


def _photos(folder: Path) -> int:
    return sum(path.suffix.lower() in IMAGE_SUFFIXES and not is_hidden(path) for path in folder.iterdir())
