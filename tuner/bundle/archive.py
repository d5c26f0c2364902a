"""A bundle in a zip, as a browser exports it: unpacked for as long as it is used."""

import errno
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.bundle.format import FILE, MOST_BYTES
from tuner.errors import BundleError, first_line
from tuner.reading import kind_of
from tuner.untrusted import inside, reason_of

SUFFIX = ".zip"
#: What browsers and `zip` write. Each of the others has errors of its own.
COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
MOST_FILES = 10_000
#: What the disk says; anything else is a name in the zip that is damaged, or that this system does not allow.
OF_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO}
_PIECE_BYTES = 2**20


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a bundle's folder: the path itself, or what a zip holds, in a private folder that is removed afterwards.

    Raises:
        BundleError: The zip cannot be read, holds no bundle, or more than a bundle may hold.
    """
    if path.suffix.lower() != SUFFIX or kind_of(path) != "file":
        yield path
        return
    with TemporaryDirectory(prefix="tuner-bundle-") as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                _extract(archive, folder)
        except OSError as error:
            if error.errno not in OF_DISK:
                raise BundleError(f"{path} cannot be unpacked ({reason_of(error)}): copy or export it again") from None
            raise BundleError(
                f"{path} cannot be unpacked to {folder.parent} ({reason_of(error)}): free some space, or name another "
                "folder in the variable TMPDIR"
            ) from None
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:  # damaged, or encrypted
            raise BundleError(f"{path} cannot be unpacked ({first_line(error)}): copy or export it again") from None
        yield folder


def _extract(archive: zipfile.ZipFile, folder: Path) -> None:
    """Write the files next to the topmost ``bundle.json``, and below it."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    marks = [member.filename for member in members if member.filename.rpartition("/")[2] == FILE]
    if not marks or len(members) > MOST_FILES:
        raise ValueError(f"{len(members)} files, {len(marks)} of them {FILE}")
    above = min(marks, key=lambda name: name.count("/")).removesuffix(FILE)
    left = MOST_BYTES
    for member in members:
        if not member.filename.startswith(above):
            continue
        if member.compress_type not in COMPRESSIONS:
            raise ValueError("it is compressed in a way other than deflate")
        target = inside(folder, member.filename.removeprefix(above))
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("xb") as file:
            while piece := source.read(_PIECE_BYTES):  # what the zip declares of its sizes is not believed
                left -= len(piece)
                if left < 0:
                    raise ValueError(f"more than {MOST_BYTES:,} bytes")
                file.write(piece)
