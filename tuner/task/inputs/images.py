"""Images: files in folders or a manifest, or pixels in an ``.npz``; decoded, resized and cropped."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tuner.arrays import Array
from tuner.errors import TaskError
from tuner.reading import files_below, kind_of
from tuner.task.data.entry import Entry, EntrySource, Origin, empty_partition, no_such_data, unreadable
from tuner.task.data.images import CHANNELS, check_image, check_scale, decode_image, fit_image, fit_pixels
from tuner.task.data.listing import IMAGE_SUFFIXES, divided, read_listing
from tuner.task.data.readable import kept
from tuner.task.data.samples import FileSamples
from tuner.task.data.sessions import numbered, session_of
from tuner.task.inputs.arrays import no_size, read_arrays
from tuner.task.inputs.base import InputKind, Network
from tuner.task.spec import InputDefaults, InputSpec


class Images(InputKind):
    """Images, uint8 [3, size, size]."""

    name = "images"
    suffixes = IMAGE_SUFFIXES
    noun = "images"
    settings = frozenset({"size", "resize", "recording"})

    def entry(self, source: EntrySource) -> Entry:
        """Return the images of class folders, of a manifest or of an ``.npz``; files stay on disk."""
        path = source.path
        if kind_of(path) == "nothing":
            raise no_such_data(path, source.partition)
        is_folder = kind_of(path) == "folder"
        if path.suffix.lower() == ".npz" and not is_folder:
            return read_arrays(source)
        if is_folder and not source.labelled:
            files, others = _below(path)
            labels, listed = list[tuple[str, ...]](), [""] * len(files)
        else:
            files, labels, listed, others = read_listing(source, path, IMAGE_SUFFIXES, self.noun)
        if not files:
            raise empty_partition(path, source.partition)
        if source.check is not None:
            source.check.count(path, files, others)
            keep = source.check.readable(files, lambda file: check_image(file, source.spec))
            if not any(keep):
                raise source.check.error(path)
            files, listed, labels = kept(files, keep), kept(listed, keep), kept(labels, keep) if labels else []
        none = (), np.zeros(len(files), np.int64)
        classes, targets = source.targets.read_texts(labels, path) if labels else none
        sessions = [own or session_of(file, source.recording) for own, file in zip(listed, files, strict=True)]
        numbers = numbered(sessions)
        build = partial(FileSamples, files, spec=source.spec, sessions=sessions)
        origin = Origin((), (), numbers) if numbers.max() + 1 < len(files) else None
        return Entry(str(path), classes, targets, build, origin)

    def read(self, path: Path, spec: InputSpec) -> Array:
        return decode_image(path, spec)

    def decoded(self, sample: Any, spec: InputSpec) -> Array:
        """Return an image of pillow, or pixels [H, W] or [H, W, 3] as of a camera (RGB), as the model sees it."""
        if hasattr(sample, "getexif"):
            return fit_image(sample, spec)
        pixels = np.asarray(sample)
        is_grey, is_rgb = pixels.ndim == len("HW"), pixels.shape[-1:] == (3,) and pixels.shape[0] != len(CHANNELS)
        return fit_pixels(pixels, spec) if pixels.dtype == np.uint8 and (is_grey or is_rgb) else pixels

    def completed(self, given: Mapping[str, Any], published: Callable[[], InputDefaults | None]) -> dict[str, Any]:
        """Return the fields with the published model's own preparation, where a file leaves out some of it."""
        values = dict(given)
        defaults = None if all(given[key] for key in ("size", "mean", "std")) else published()
        if defaults is not None:
            values["resize"] = given["resize"] if given["size"] or given["resize"] else defaults.resize
            values |= {key: given[key] or getattr(defaults, key) for key in ("size", "mean", "std")}
        if values["size"] is None:
            raise TaskError('input.size is missing, and kind = "images" needs it: e.g. size = 160')
        for key in ("mean", "std"):
            if len(values[key]) not in {1, 3}:
                raise TaskError(
                    f"input.{key} must have 1 or 3 values for images, got {list(values[key])}: give those of the "
                    "model's training, e.g. mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] for ImageNet"
                )
        check_scale(values)
        return values

    def proposed(self, source: EntrySource) -> dict[str, Any]:  # noqa: ARG002 - for others
        """Return the size and the colours of ImageNet, which most published networks were trained with."""
        return {"size": 160, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

    def network(self, shape: Sequence[int], outputs: int) -> Network:  # noqa: ARG002 - it takes any size, its head grows
        return Network("torchvision.models:mobilenet_v2", {}, "mobilenet_v2[_.-]*", ("flip", "crop", "shift"))

    def check(self, spec: InputSpec, recording: str | None = None) -> None:
        super().check(spec, recording)
        if spec.size is None:
            raise no_size(self.name)


def _below(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the images anywhere below a folder, and the other files."""
    try:
        return divided(files_below(folder), IMAGE_SUFFIXES)
    except OSError as error:
        raise unreadable(error, folder) from error
