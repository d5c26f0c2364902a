"""Files that the user names, read whole: regular files only, within a limit of bytes, and TOML of bounded depth.

Opening a FIFO waits for a writer, and a device may never end: what a path leads to is asked before it is opened, and of
the open file again. Recursive parsers are given no text that is nested deeper than `MOST_DEPTH`.
"""

import errno
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tuner.distribution import install_command
from tuner.errors import TunerError

#: Bytes of a text: a task, a search space, a plan, a model file.
MOST_TEXT_BYTES = 4_000_000
#: Tables and arrays inside each other, and parts of a dotted key.
MOST_DEPTH = 32
INTEGER_BITS = 64  # as TOML has it

#: Windows has none of the first two, and needs the third.
_READ = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))

Kind = Literal["file", "folder", "special", "nothing"]

_SPECIAL = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
_STRINGS_AND_COMMENTS = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''.*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'|" r"#[^\n]*", re.DOTALL
)

#: Folders and files that systems, programs and network storages keep for themselves, in lower case.
SYSTEM_NAMES = frozenset(
    {"#recycle", "#snapshot", "$recycle.bin", "@eadir", "__macosx", "desktop.ini", "ehthumbs.db", "lost+found"}
    | {"system volume information", "thumbs.db"}
)

#: Photos of an iPhone, and whether the extra `heic`, which reads them, is installed.
HEIC_SUFFIXES, READS_HEIC = frozenset({".heic", ".heif", ".hif"}), find_spec("pillow_heif") is not None

#: A scheme of one letter would be a drive of Windows.
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")


def is_address(text: object) -> bool:
    """Return whether a text is an address, such as ``postgresql://host/db``, and not the path of a folder."""
    return isinstance(text, str) and _ADDRESS.match(text) is not None


def kind_of(path: str | Path) -> Kind:
    """Return what a path leads to: ``"nothing"`` also where it may not be looked at, or no file can have the name."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - pathlib's questions raise for a name that is too long
    except (OSError, ValueError):
        return "nothing"
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "special"


def is_hidden(path: Path) -> bool:
    """Return whether a file or folder is not the user's own: its name begins with a dot, or is one of a system's."""
    return path.name.startswith(".") or path.name.lower() in SYSTEM_NAMES


def files_below(folder: Path, refused: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yield the files anywhere below a folder, as `walk` does."""
    return (file for _, files in walk(folder, refused) for file in files)


def walk(folder: Path, refused: Callable[[OSError], object] | None = None) -> Iterator[tuple[Path, list[Path]]]:
    """Yield a folder, and each anywhere below it, with its files, sorted; but nothing hidden.

    Args:
        folder: Where to begin. Links to folders elsewhere are followed; what is in it counts by its own name only.
        refused: Called for a folder that cannot be read; without it, the error is raised.
    """

    def on_error(error: OSError) -> None:
        if refused is None:
            raise error
        refused(error)

    root = folder.resolve()
    for above, folders, names in os.walk(folder, onerror=on_error, followlinks=True):
        own = (name for name in sorted(folders) if not is_hidden(Path(name)))
        folders[:] = [name for name in own if _leads_elsewhere(Path(above, name), root)]
        yield Path(above), [path for name in sorted(names) if not is_hidden(path := Path(above, name))]


def _leads_elsewhere(folder: Path, root: Path) -> bool:
    """Return whether a folder is none that is looked at anyway: no link into the root, or to a folder above either."""
    if not folder.is_symlink():
        return True
    real, around = folder.resolve(), (root, folder.parent.resolve())
    return root not in real.parents and not any(real in {each, *each.parents} for each in around)


def kinds_of(files: Iterable[Path]) -> str:
    """Return how many files of each kind there are, the most first, and what would read them where an extra does."""
    counts = Counter(map(_kind, files))
    kinds = ", ".join(f"{count:,} {text_from(kind)}" for kind, count in counts.most_common())
    is_extra = HEIC_SUFFIXES & counts.keys() and not READS_HEIC
    return f"{kinds} (to read HEIC: {install_command('heic')})" if is_extra else kinds


def _kind(file: Path) -> str:
    kind = kind_of(file)
    if kind == "file":
        return file.suffix.lower() or "without an ending"
    return "broken link" if kind == "nothing" else "special file"


def path_from(text: str) -> str:
    """Return the path that a text in UTF-8 means, as this process spells it, whose locale may know ASCII only."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def expanded(path: str | Path) -> Path:
    """Return a path with a home folder in place of ``~`` or ``~user``, but where a file has that name.

    Raises:
        TunerError: There is no such home, and no such file.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        if kind_of(path) != "nothing":
            return Path(path)
        raise TunerError(f"{path}: its ~ leads to no home folder: set HOME, or give the whole path") from None


def same_form(name: str) -> str:
    """Return a class's name in Unicode's composed form (NFC): macOS writes another, which looks alike."""
    return unicodedata.normalize("NFC", name)


def text_from(path: str | Path) -> str:
    """Return a path as text that UTF-8 and JSON can hold; bytes that are no UTF-8 are escaped, and lead nowhere."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading, without waiting for anything; anything else is an `OSError`."""
    try:
        _check_regular(os.stat(path).st_mode, path)  # noqa: PTH116 - one question, whatever the name
        descriptor = os.open(path, _READ)
    except ValueError:  # a NUL, or a letter that the locale does not have
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    try:
        _check_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: str | Path, most_bytes: int) -> bytes:
    """Read a regular file of at most so many bytes whole; anything else is an `OSError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(errno.EFBIG, f"{size / 1e6:.0f} MB, more than {most_bytes / 1e6:.0f} MB", str(path))
        return file.read(size)


def read_text(path: str | Path, kind: type[TunerError], way_out: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Read a small text in UTF-8, with or without a byte-order mark.

    An error is of the class `kind`, and ends with the way out: where the text cannot be read, is no regular file, is
    too large, or is not UTF-8.
    """
    try:
        return read_bytes(path, most_bytes).decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text: {error.reason} at byte {error.start}"
    raise kind(f"{path}: cannot be read ({reason}): {way_out}")


def read_toml(path: str | Path, kind: type[TunerError], way_out: str) -> dict[str, Any]:
    """Read a TOML file, as `parse_toml` takes it; arguments and errors as for `read_text`."""
    text = read_text(path, kind, way_out)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise kind(f"{path}: not valid TOML ({error}): {way_out}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML of bounded depth.

    Raises:
        ValueError: The text is not TOML, is nested deeper than `MOST_DEPTH`, or has an integer of more than 64 bits.
    """
    _check_depth(_STRINGS_AND_COMMENTS.sub('""', text))
    import tomllib  # of few commands

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's own limit on the digits of an integer
        raise ValueError(_TOO_LARGE) from None
    _check_integers(content)
    return content


_TOO_LARGE = f"an integer must fit into {INTEGER_BITS} bits"


def _check_depth(text: str) -> None:
    depth = 0
    for match in re.finditer(r"[\[{\]}]", text):
        depth += 1 if match[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise ValueError(f"arrays and tables may be nested {MOST_DEPTH} deep")
    parts = re.split(r"[\n=,\[\]{}]+", text.replace(" ", "").replace("\t", ""))
    if max(part.count(".") for part in parts) > MOST_DEPTH:
        raise ValueError(f"a key may have {MOST_DEPTH} parts")


def _check_integers(value: object) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_integers(item)
    elif isinstance(value, int) and not -(2 ** (INTEGER_BITS - 1)) <= value < 2 ** (INTEGER_BITS - 1):
        raise ValueError(_TOO_LARGE)


def _check_regular(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        what = _SPECIAL.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"{what}, not a regular file", str(path))
