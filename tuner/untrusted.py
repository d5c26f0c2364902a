"""Folders that may come from elsewhere: what is read or written is inside them, and JSON is of a bounded size.

A bundle, a run and a store are folders that people copy from others. A name in one of their files may lead out of the
folder, and a file may be a link that does.
"""

import errno
import json
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from tuner.reading import read_bytes

#: Largest file of settings that is read whole: of JSON or TOML.
MOST_BYTES = 16 * 10**6


def inside(folder: Path, name: object) -> Path:
    """Return the path that a name stands for, which no part of the name and no link leads out of the folder.

    Args:
        folder: The folder, which may itself be a link: the user named it.
        name: Relative path with forward slashes; any other is an `OSError`.
    """
    if not isinstance(name, str) or not name or not name.isprintable() or set(name) & set("\\:"):  # of Windows
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


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """Return the content of a file of JSON, as `parse_json` and `read_bytes` do."""
    return parse_json(read_bytes(path, most_bytes))


def parse_json(content: bytes) -> Any:
    """Return JSON's value; a `ValueError` where it is not JSON in UTF-8, or is nested too deeply."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def require_plain(folder: Path) -> None:
    """Check that a folder holds files and folders only: what is written to a link is written elsewhere."""
    for path in folder.iterdir():
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # another process has replaced it meanwhile
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.ELOOP, f"{path.name!r} in it is neither a file nor a folder")


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, without its path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
