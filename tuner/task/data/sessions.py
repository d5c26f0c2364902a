"""What samples were taken together: a burst of photos, or the sounds of one recording, are too much alike to divide."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tuner.arrays import RowNumbers
from tuner.errors import TaskError
from tuner.task.data.images import image_formats

#: Value of ``input.recording`` by which photos of the same minute are a session.
EXIF = "exif"
_EXIF_TABLE, _TAKEN, _DIGITISED = 0x8769, 36867, 36868  # tags of EXIF; not of the last change, which programs write
_MINUTE = re.compile(r"[12]\d{3}:\d\d:\d\d \d\d:\d\d")


def recording_of(file: Path, pattern: str | None) -> str:
    """Return the name of the recording that a file is a part of: its own path where nothing says so.

    Raises:
        TaskError: The pattern is no regular expression, or does not match.
    """
    if pattern is None:
        return str(file)
    try:
        match = re.search(pattern, file.name)
    except re.error as error:
        raise TaskError(f"input.recording must be a regular expression, got {pattern!r} ({error})") from None
    if match is not None and not match[0]:
        raise TaskError(f"{file}: input.recording = {pattern!r} matches nothing of this file's name: correct it")
    if match is None:
        raise TaskError(
            f"{file}: input.recording = {pattern!r} does not match this file's name: correct it, or rename the file"
        )
    return match[0]


def session_of(photo: Path, pattern: str | None) -> str:
    """Return the session of a photo: the minute it was taken in, or as `recording_of`; its own path if unknown."""
    return _minute(photo) or str(photo) if pattern == EXIF else recording_of(photo, pattern)


def numbered(names: Sequence[str]) -> RowNumbers:
    """Return a number for each name, the same for the same name, from 0 in order of occurrence."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


def _minute(photo: Path) -> str:
    """Return the day and minute in which a photo was taken, as its EXIF says; empty where it does not."""
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(photo, formats=image_formats()) as image:
            table = image.getexif().get_ifd(_EXIF_TABLE)
    except Exception:  # noqa: BLE001 - a damaged header raises what its format raises; such a photo has no known minute
        return ""
    found = _MINUTE.match(str(table.get(_TAKEN) or table.get(_DIGITISED) or ""))
    return found[0] if found else ""
