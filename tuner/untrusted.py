"""Files that may come from elsewhere: regular files only, inside their folder, of a bounded size.

A bundle, a run and a store are folders that people copy from others. A name in one of their files may lead out of the
folder, a file may be a link, a pipe that never ends, or too large to be read.
"""

import errno
import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any

#: Largest file of settings that is read whole: of JSON or TOML.
MOST_BYTES = 16 * 10**6


def inside(folder: Path, name: object) -> Path:
    """Return the path that a name stands for, which no part of the name and no link leads out of the folder.

    Args:
        folder: The folder, which may itself be a link: the user named it.
        name: Relative path with forward slashes.

    Raises:
        OSError: It leads elsewhere, or is no such name.
    """
    if not isinstance(name, str) or not name or not name.isprintable() or "\\" in name:
        raise OSError(errno.EINVAL, f"{name!r} is not the name of a file")
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or not parts:
        raise OSError(errno.EINVAL, f"{name!r} leads out of the folder")
    path = folder
    for part in parts:
        path /= part
        if path.is_symlink():
            raise OSError(errno.ELOOP, f"{name!r} is a link, which may lead out of the folder")
    return path


def open_regular(path: Path, most_bytes: int | None = None) -> int:
    """Open a regular file for reading, and return its descriptor.

    Raises:
        OSError: It is a pipe, a device or a folder, or larger than `most_bytes`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer never opens else
    status = os.fstat(descriptor)
    is_large = most_bytes is not None and status.st_size > most_bytes
    if stat.S_ISREG(status.st_mode) and not is_large:
        return descriptor
    os.close(descriptor)
    if is_large:
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, more than {most_bytes:,}")
    raise OSError(errno.EINVAL, "it is not a regular file")


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: As `open_regular`.
    """
    with os.fdopen(open_regular(path, most_bytes), "rb") as file:
        return file.read(most_bytes)


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """Return the content of a file of JSON.

    Raises:
        OSError: As `open_regular`.
        ValueError: It is not JSON in UTF-8, or is nested too deeply.
    """
    return parse_json(read_regular(path, most_bytes))


def parse_json(content: bytes) -> Any:
    """Return JSON's value.

    Raises:
        ValueError: It is not JSON in UTF-8, or is nested too deeply.
    """
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def require_plain(folder: Path) -> None:
    """Check that a folder holds files and folders only: what is written to a link is written elsewhere.

    Raises:
        OSError: It holds something else, or cannot be read.
    """
    for path in folder.iterdir():
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.ELOOP, f"{path.name!r} in it is neither a file nor a folder")


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, without its path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
