"""Where Frigate keeps the photos and the files of a custom classification model, and how it looks at a photo.

The layout is that of Frigate 0.17, ``frigate/util/classification.py`` and
``frigate/data_processing/real_time/custom_classification.py``: photos are in ``clips/MODEL/dataset/CLASS``, the model's
files in ``model_cache/MODEL``. A crop is stretched to a square, whatever its sides are, and goes in as uint8; the
probabilities come out as uint8. The classes are in alphabetical order, one a line in ``labelmap.txt``.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.errors import TaskError, UsageError
from tuner.task.spec import InputSpec

if TYPE_CHECKING:
    from PIL.Image import Image

#: Side of the square that Frigate stretches a crop to.
SIDE = 224
DATASET, CACHE = "dataset", "model_cache"
MODEL, LABELS = "model.tflite", "labelmap.txt"
#: Ending of the files that were there before.
BACKUP = ".before-tuner"
SUFFIXES = frozenset({".webp", ".png", ".jpg", ".jpeg"})
#: Frigate's own folders among those of classes.
NO_CLASSES = frozenset({"temp"})
#: Where Frigate's container has them.
CONTAINER = Path("/config") / CACHE


@dataclass(frozen=True, slots=True)
class FrigateModel:
    """A model of Frigate's.

    Attributes:
        name: Its name.
        dataset: Folder of the folders of classes.
        target: Folder that its files are written to.
    """

    name: str
    dataset: Path
    target: Path

    def photos(self) -> dict[str, list[Path]]:
        """Return the photos of each class.

        Raises:
            TaskError: There are fewer than two classes with photos.
        """
        folders = [one for one in sorted(self.dataset.iterdir()) if one.is_dir() and one.name not in NO_CLASSES]
        found = {one.name: sorted(path for path in one.iterdir() if path.suffix.lower() in SUFFIXES) for one in folders}
        filled = {name: paths for name, paths in found.items() if paths}
        if len(filled) < 2:  # noqa: PLR2004
            raise TaskError(
                f"{self.dataset} must have photos of two classes or more, got {', '.join(filled) or 'none'}: "
                "sort photos into classes on the model's page in Frigate"
            )
        return filled


def model_of(folder: Path, cache: Path | None) -> FrigateModel:
    """Return the model whose photos are in a folder ``clips/MODEL``.

    Args:
        folder: That folder, or its ``dataset``.
        cache: Frigate's folder ``model_cache``; looked for next to the folder ``clips``, and in ``/config``, where it
            is None.

    Raises:
        UsageError: There is no such folder.
    """
    own = folder.parent if folder.name == DATASET else folder
    own = own.resolve()
    if not (own / DATASET).is_dir():
        raise UsageError(
            f"{folder} has no folder {DATASET}: give the folder of a model of Frigate's, such as "
            "/media/frigate/clips/front_door"
        )
    places = [own.parents[1] / CACHE, own.parents[1] / "config" / CACHE, CONTAINER] if cache is None else [cache]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise UsageError(
            f"Frigate's folder {CACHE} is not at {' or '.join(map(str, places))}: name it by --model-cache; "
            "it is in the folder with Frigate's config.yml"
        )
    return FrigateModel(own.name, own / DATASET, found.resolve() / own.name)


def square(path: Path) -> "Image | None":
    """Return a photo as Frigate's model sees it; None of one that cannot be read.

    It is sampled as OpenCV's linear interpolation does, which reads four pixels however large a photo is.
    """
    from PIL import Image

    from tuner.task.data.images import check_image, image_formats, to_rgb

    try:
        check_image(path, InputSpec("images", size=SIDE))
        with Image.open(path, formats=image_formats()) as photo:
            pixels = to_rgb(photo)
    except (TaskError, OSError, ValueError):
        return None
    return pixels.transform((SIDE, SIDE), Image.Transform.EXTENT, (0, 0, *pixels.size), Image.Resampling.BILINEAR)


def stretched(photos: Mapping[str, list[Path]], folder: Path) -> tuple[Path, ...]:
    """Write photos as Frigate's model sees them, a folder for each class; return those that cannot be read.

    A copy has the name of its photo, with ``.png`` behind it.

    Raises:
        TaskError: None of a class can be read.
    """
    unread = list[Path]()
    for name, paths in photos.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in paths:
            image = square(path)
            if image is None:
                unread.append(path)
            else:
                image.save(folder / name / f"{path.name}.png", compress_level=1)
        if unread[-len(paths) :] == paths:
            raise TaskError(f"none of the photos in {paths[0].parent} can be read: replace them, or remove the class")
    return tuple(unread)


def install(files: Mapping[str, bytes], target: Path) -> list[Path]:
    """Write files in place of those of Frigate's, which are kept next to them the first time; return what was kept.

    Every file is written next to its place first, so that none is ever half written.
    """
    target.mkdir(parents=True, exist_ok=True)
    kept = []
    # What a later training replaces was written by an earlier one.
    is_first = not any((target / f"{name}{BACKUP}").exists() for name in files)
    for name, content in files.items():
        draft = target / f"{name}.new"
        draft.write_bytes(content)
        draft.chmod(0o644)  # Frigate may run as another user
        if is_first and (target / name).exists():
            kept.append(target / f"{name}{BACKUP}")
            shutil.copy2(target / name, kept[-1])
    for name in files:
        os.replace(target / f"{name}.new", target / name)  # noqa: PTH105 - both are files of one folder
    return kept
