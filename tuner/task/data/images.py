"""Pixels: decode, resize, crop, normalise.

Training and inference share this code, so that a bundle sees on the device the pixels it was trained on.
"""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tuner.arrays import Array, Codes
from tuner.errors import TaskError
from tuner.reading import open_regular
from tuner.reading import read_bytes as read_regular
from tuner.task.spec import PIXEL_MOST, InputSpec

#: What pillow may decode: of its other formats some start programs, such as Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "JPEG2000")
MOST_IMAGE_BYTES = 300_000_000
#: Pixels of an image, as its header says, and after resizing; below the number that pillow refuses.
MOST_PIXELS = 178_000_000
CHANNELS = "RGB"


def decode_image(source: str | Path | bytes, spec: InputSpec) -> Codes:
    """Read one image as the model sees it, before normalisation.

    Args:
        source: Path or content of a file.
        spec: Size and resize; the short side is resized (bilinear) to `resize`, then `size` is cropped from the centre.

    Returns:
        uint8 [3, size, size], RGB, upright by its EXIF orientation; the first frame of an animation.

    Raises:
        TaskError: The file is missing, cannot be read, or is not an image.
    """
    name = "the given bytes" if isinstance(source, bytes) else str(source)
    content = source if isinstance(source, bytes) else read_bytes(source)
    with _decoding(name), _opened(content) as image:
        _check_pixels(_resized(image.size, spec))
        return fit_image(image, spec)


def check_image(path: str | Path, spec: InputSpec) -> None:
    """Check that an image can be decoded, sooner than decoding it: a JPEG at an eighth of its size, a PNG by its CRCs.

    Raises:
        TaskError: As `decode_image`, but for pixels of a PNG that its checksums hold for.
    """
    content = read_bytes(path)
    with _decoding(str(path)), _opened(content) as image:
        _check_pixels(_resized(image.size, spec))
        if image.format == "PNG":
            image.verify()
        else:
            image.draft("RGB", (1, 1))
            image.load()
            _check_depth(image)


def short_side(path: str | Path) -> int:
    """Return an image's shorter side in pixels, as its header says.

    Raises:
        TaskError: As `decode_image`.
    """
    with _decoding(str(path)), open_regular(path) as file, Image.open(file, formats=image_formats()) as image:
        return min(image.size)


def read_bytes(path: str | Path) -> bytes:
    """Read a sample's file.

    Raises:
        TaskError: The file is missing, too large, no regular file, or cannot be read.
    """
    try:
        return read_regular(path, MOST_IMAGE_BYTES)
    except FileNotFoundError as error:
        raise TaskError(f"{path}: no such file: check the path; it may have been removed") from error
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror or error}): check its permissions") from error


def fit_image(image: Image.Image, spec: InputSpec) -> Codes:
    """Return an image as the model sees it, as `decode_image` does."""
    return _channels_first(_fit(to_rgb(ImageOps.exif_transpose(image)), spec))


def fit_pixels(pixels: Codes, spec: InputSpec) -> Codes:
    """Resize and crop pixels that are already decoded: uint8 [H, W] or [H, W, 3] -> uint8 [3, size, size]."""
    return _channels_first(_fit(Image.fromarray(pixels).convert("RGB"), spec))


def fit_array(sample: Array, spec: InputSpec) -> Array:
    """Resize and crop each channel: [C, H, W] -> [C, size, size]; uint8 stays uint8, all else becomes float32."""
    planes = sample if sample.dtype == np.uint8 else sample.astype(np.float32)
    return np.stack([np.asarray(_fit(Image.fromarray(np.ascontiguousarray(plane)), spec)) for plane in planes])


def check_scale(values: Mapping[str, Any]) -> None:
    """Refuse ``mean`` and ``std`` of pixels from 0 to 255: they are those of pixels from 0 to 1.

    Raises:
        TaskError: One is above 1.
    """
    wrong = next((key for key in ("mean", "std") if max(values[key], default=0) > 1), None)
    if wrong is not None:
        scaled = {key: ", ".join(f"{value / PIXEL_MOST:.3g}" for value in values[key]) for key in ("mean", "std")}
        raise TaskError(
            f"input.{wrong} must be of pixels from 0 to 1, so at most 1, got {list(values[wrong])}: if mean and std "
            f"are of pixels from 0 to 255, divide them by 255: mean = [{scaled['mean']}], std = [{scaled['std']}]"
        )


def _check_depth(image: Image.Image) -> None:
    if image.mode in {"I", "F"}:
        raise ValueError("pixels of 32 bits, whose range is not known: save it with 8 or 16 bits a channel")


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image in 8 bits of red, green and blue; a `ValueError` of pixels whose range is not known."""
    if image.mode.startswith("I;16"):  # 16-bit grey: the upper byte, where pillow's own conversion may clip to white
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    _check_depth(image)
    if image.mode == "P" and "transparency" in image.info:  # by way of RGBA, as pillow asks in a warning
        image = image.convert("RGBA")
    return image.convert("RGB")


@cache
def image_formats() -> tuple[str, ...]:
    """Return what may be decoded here: photos of an iPhone too where their library is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ModuleNotFoundError:
        return FORMATS
    register_heif_opener()
    return *FORMATS, "HEIF"


def _opened(content: bytes) -> Image.Image:
    """Return an image whose header is read; no pixel is decoded yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # half of what is allowed
        try:
            image = Image.open(io.BytesIO(content), formats=image_formats())
        except Image.DecompressionBombError:
            raise ValueError(f"more than {MOST_PIXELS / 1e6:.0f} megapixels") from None
    _check_pixels(image.size)
    return image


def _check_pixels(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MOST_PIXELS:
        raise ValueError(f"{width} × {height} pixels, more than {MOST_PIXELS / 1e6:.0f} megapixels")


@contextmanager
def _decoding(name: str) -> Iterator[None]:
    """Turn what pillow raises for a damaged file, which each format does in its own way, into a `TaskError`."""
    try:
        yield
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        reason = "no known format" if "cannot identify" in first else first or type(error).__name__
        raise TaskError(f"{name}: not an image that can be decoded ({reason}): replace or remove it") from error


def _resized(pixels: tuple[int, int], spec: InputSpec) -> tuple[int, int]:
    """Return width and height of an image whose short side is resized to `spec.resize`."""
    if spec.size is None:
        raise TaskError("input.size is needed to decode an image: give the side in pixels, e.g. size = 160")
    (width, height), short = pixels, spec.resize or spec.size
    scale = short / min(width, height)
    return (short, max(short, int(height * scale))) if width <= height else (max(short, int(width * scale)), short)


def _fit(image: Image.Image, spec: InputSpec) -> Image.Image:
    resized, size = _resized(image.size, spec), spec.size or 0
    if resized != image.size:
        image = image.resize(resized, Image.Resampling.BILINEAR)
    left, top = round((resized[0] - size) / 2), round((resized[1] - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _channels_first(image: Image.Image) -> Codes:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))  # uint8 [3, size, size]
