"""Caches of tests, as a device has them after its first run: with pretrained weights, and with the device's rates.

The weights of the built-in task's network lie in a fixture. Those that tests pretrain for fewer epochs are made once,
and shared by all processes that test. Where another PyTorch begins with other weights, none of the fixture is found.
Other folders that several files of tests need are shared too.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

WEIGHTS = Path(__file__).parent / "fixtures" / "pretrained"


def with_weights(cache: Path) -> Path:
    """Make a cache folder, and put the weights there: a test that is about something else need not train them."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (WEIGHTS, _made()):
        shutil.copytree(folder, cache / "pretrained", ignore=shutil.ignore_patterns("*.part"), dirs_exist_ok=True)
    return cache


def keep_weights(cache: Path) -> None:
    """Share what was pretrained in a cache with the tests that follow."""
    made = _made()
    for path in (cache / "pretrained").glob("*.safetensors"):
        if not (made / path.name).exists():
            part = made / f"{path.name}.{os.getpid()}.part"
            shutil.copy(path, part)
            part.replace(made / path.name)


def with_rates(cache: Path) -> Path:
    """Let a cache share what the tests' other runs measure of the device: measuring a network takes a second."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    (cache / "rates").symlink_to(_shared("rates"))
    return cache


def shared(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that the first test makes which asks for it, of all processes; nobody changes it."""
    folder = _shared("folders") / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_suffix(".part")
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder


def _made() -> Path:
    return _shared("pretrained")


def _shared(name: str) -> Path:
    folder = Path(os.environ["TESTS_SHARED"]) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
