"""How the tests run: the same examples every time, however slow the machine, and threads that wait without spinning."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis.strategies import none

from tests.pretrained import keep_weights, with_rates, with_weights
from tests.schemas import checked_dumps
from tests.warm import Processes

#: Two processes test at once, on two cores: one thread each, except where a test asks for more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
#: OpenMP's threads spin while they wait for each other: next to another busy process that costs many times the work.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
#: Compiling the checkout anew takes each process up to 9 s of processor time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("TUNER_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
if "TESTS_SHARED" not in os.environ:  # this process starts those that test
    os.environ["TESTS_SHARED"] = tempfile.mkdtemp(prefix="tuner-tests-")
    atexit.register(shutil.rmtree, os.environ["TESTS_SHARED"], ignore_errors=True)
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
#: What is imported stays: looking for garbage among it takes a fifth of the time.
gc.disable()


def _keep(phase: str, about: dict[str, int]) -> None:
    """Look no more at what outlived a whole look for garbage: what traces steps asks for one each time."""
    if phase == "stop" and about["generation"] == 2:
        gc.freeze()


@settings(max_examples=1)
@given(none())
def _begin(_: None) -> None:
    """Let Hypothesis begin: it looks for who knows its generator, which it would not find once that is kept."""


@pytest.fixture(scope="module", autouse=True)
def warm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork the processes that trials run in from one that has the libraries, but for modules marked as `cold`."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("cold") is None:
            patch.setattr("tuner.search.processes.server.subprocess", Processes)
        # --time counts from the call, not from when this process began
        patch.setattr("tuner.commands.tune.run.process_started", time.monotonic)
        # how long a prediction takes is measured once, not several times in case the device is busy
        patch.setattr("tuner.search.estimate.rates.REPEATS", 1)
        # a command that is called here and breaks its limits on a busy machine must not end pytest
        patch.setattr("faulthandler.dump_traceback_later", lambda *_, **__: None)
        # what a command prints with --json, wherever a test calls one in this process, obeys its schema
        patch.setattr("tuner.cli.options.json", SimpleNamespace(dumps=checked_dumps))
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a test a cache of its own."""
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let a module's tests share a cache, away from the user's own."""
    folder = with_rates(with_weights(tmp_path_factory.mktemp("cache")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_CACHE", str(folder))
        yield folder
    keep_weights(folder)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the real data where it is not."""
    if item.get_closest_marker("data") and not Path(os.environ["TUNER_DATA"], "README.md").is_file():
        pytest.skip("the real data is not there: set TUNER_DATA to its folder")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the wheel: one process then installs it once, where at the end both would, each for half the tests."""
    items.sort(key=lambda item: item.path.name != "test_wheel.py")


def pytest_collection_finish() -> None:
    """Look for garbage from now on, less often than usual, and not among what collecting the tests has imported."""
    _begin()
    gc.callbacks.append(_keep)
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 20)
