"""Where this device keeps what outlives a run, files that are private to the user, and Python files that they wrote."""

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from tuner.errors import WAYS_OUT, RunError, StoreError, TunerError

OTHERS = 0o077
_OS_ERROR = re.compile(r"os error (\d+)")
CACHED = frozenset({"store", "rates", "pretrained", "prefix", "int8", "readable", "runs", "rings", "bundles"}) | {
    "key",
    "key.lock",
}
PART = ".part"
#: Attribute of a module that a plugin's file was imported as: the file's bytes.
CONTENT = "_tuner_content"


def private_folder(folder: Path, kind: type[TunerError] = RunError, ours: Collection[str] = ()) -> Path:
    """Make a folder, with its parents, that only the user can read; an error where it cannot be made is of a `kind`.

    An existing one becomes so if nothing is in it but names of `ours`; else its mode is the user's own choice.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        is_open = status.st_mode & OTHERS and is_own(status)
        if is_open and all(path.name in ours for path in folder.iterdir()):
            folder.chmod(0o700)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise kind(f"tuner cannot use the folder {folder} ({reason}): give another one") from None
    return folder


def cache_folder() -> Path:
    """Return `cache_place`, made private to the user; a `StoreError` where it cannot be used."""
    try:
        return own_folder(private_folder(cache_place(), StoreError, CACHED))
    except StoreError as error:
        raise error if os.environ.get("TUNER_CACHE") else StoreError(f"{error}, by TUNER_CACHE") from None


def cache_place() -> Path:
    """Return ``$XDG_CACHE_HOME/tuner`` (or the platform's own), which need not be there.

    Raises:
        StoreError: There is none, as where nobody has a home; the variable to set.
    """
    import platformdirs  # a process that only predicts does without

    try:
        return Path(os.environ.get("TUNER_CACHE") or platformdirs.user_cache_dir("tuner"))
    except (RuntimeError, KeyError):  # of a user that the system does not know
        raise StoreError("there is no home folder for tuner's cache: set TUNER_CACHE to a folder of yours") from None


def own_folder(folder: Path) -> Path:
    """Return a folder if it is the user's own: what another user may have put there is not used."""
    status = folder.stat()
    if not is_own(status):
        raise StoreError(
            f"{folder} is owned by another user (id {status.st_uid}): give a folder of your own, a store by "
            "--store and a cache by TUNER_CACHE"
        )
    return folder


def is_own(status: os.stat_result) -> bool:
    """Return whether this process's user owns a file. Windows numbers no users: there, who may write it owns it."""
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def write_private(path: Path, content: bytes | str, *, durable: bool = True) -> None:
    """Write a file whole or not at all, readable by the user only; arguments and errors as in `private_file`."""
    with private_file(path, durable=durable) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def private_file(path: Path, *, durable: bool = True, mode: int = 0o600) -> Iterator[Path]:
    """Give a file to write into, which then takes the place of another; only the user can read either.

    Whenever the process is killed, there is the old file or the new one, and neither is torn. Threads and processes may
    write at once; the last holds.

    Args:
        path: To replace, or to make in a folder that exists.
        durable: Whether to wait until the disk has it. Without, a power cut may leave an empty or torn file.
        mode: Of the file, whatever the umask: another one where others are to read it too.

    Raises:
        OSError: The disk is full or cannot be written; what was there stays, and no part of the new file does.
    """
    part = path.with_name(f"{path.name}.{threading.get_native_id()}{PART}")
    try:
        part.unlink(missing_ok=True)  # a link that somebody put there would be written through
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield part
        part.chmod(mode)  # a writer may have put a file of its own there
        if durable:
            flush(part)
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in {None, str(part)}:  # the system may name no file at all
            error.filename = str(path)
        if type(error).__name__ == "SafetensorError" and (number := _OS_ERROR.search(str(error))):  # a full disk, say
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
        raise
    if durable:
        flush(path.parent)


def remove_parts(path: Path) -> None:
    """Remove what killed processes left of a file; to be called under the lock that its writers hold."""
    for part in path.parent.glob(f"{path.name}.*{PART}"):
        part.unlink(missing_ok=True)


def mark_changed(place: Path | int) -> None:
    """Give a file or folder a change time of its own: the kernel may tick every 10 ms only, then two share one."""
    now_ns = time.time_ns()
    os.utime(place, ns=(now_ns, now_ns))


def check_room(folder: Path, size: int) -> None:
    """Check that a file of so many bytes can be written, where the file system can tell; else it is an `OSError`."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in WAYS_OUT:
            error.filename = str(folder)
            raise


def overwrite(path: Path) -> None:
    """Write zeros over a file's content, on the disk too."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Wait until the disk has a file's content, or a folder's names, which Windows writes by itself."""
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows flushes what is open for writing
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def import_file(path: Path, what: str) -> ModuleType:
    """Import a Python file that the user wrote, under a name of its own; a package under the name of its folder.

    An unchanged plugin is not run again, as what it registers can be registered only once.

    Args:
        path: Absolute path of the file; ``__init__.py`` of a package, which may then import its other modules.
        what: What the file is, as part of the module's name.

    Raises:
        ImportError: Its name does not end in ``.py``, or a package's folder has the name of another module.
    """
    package = path.name == "__init__.py"
    name = path.parent.name if package else f"_tuner_{what}_{hashlib.blake2b(bytes(path), digest_size=8).hexdigest()}"
    if package and getattr(sys.modules.get(name), "__file__", None) == str(path):
        return sys.modules[name]
    content = path.read_bytes() if what == "plugin" and path.is_file() else None
    loaded = sys.modules.get(name)
    if loaded is not None and content is not None and vars(loaded).get(CONTENT) == content:
        return loaded
    if package and (other := _module_called(name, path)):
        raise ImportError(
            f"{path.parent}: a package must not have the name of another module, {other}: rename the folder"
        )
    folders = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: cannot be imported as Python: give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    setattr(module, CONTENT, content)
    return module


def _module_called(name: str, path: Path) -> str:
    """Return where a module of this name is that is not in `path`; empty where there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module without a specification, such as __main__
        return name if name in sys.modules else ""
    if spec is None or spec.origin is None or Path(spec.origin).resolve() == path.resolve():
        return ""
    return spec.origin
