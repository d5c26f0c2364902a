"""How much folders hold, seen from outside while others write into them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def standing_bytes(*folders: Path) -> int:
    """Return the bytes of all files in some folders; 0 where one of them went or shrank meanwhile.

    Looking takes time: a file that goes after it was counted, and another that grows in its place, would add up to what
    there never was at one moment. Files that all are still there, none smaller, were there together.
    """
    seen = dict(_files(folders))
    held = dict(_files(folders))
    if any(one not in held or held[one] < size for one, size in seen.items()):
        return 0
    return sum(seen.values())


def _files(folders: tuple[Path, ...]) -> Iterator[tuple[tuple[str, int], int]]:
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                with suppress(FileNotFoundError):
                    found = path.stat()
                    yield (str(path), found.st_ino), found.st_size
