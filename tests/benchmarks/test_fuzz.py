"""Changed files for some seconds; and that every reader reads what was not changed, else it would find nothing."""

import math
import shutil
from pathlib import Path

import pytest

from benchmarks.fuzz.__main__ import answered, fuzz
from benchmarks.fuzz.rooms import rooms
from tuner.errors import TunerError

FILES = 80


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))


def test_every_seed_is_read(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    every = rooms(tmp_path / "seeds")
    assert len(every) > 15
    for number, room in enumerate(every):
        seed = room.seeds[0]
        place = tmp_path / str(number)
        if seed.is_dir():
            shutil.copytree(seed, place / seed.name)
        else:
            shutil.copytree(seed.parent, place, ignore=shutil.ignore_patterns("*.onnx", "served", "migrated"))
        room.read(place / seed.name)


def test_changed_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    findings, counts = fuzz(math.inf, 1, tmp_path, files=FILES)
    assert findings == []
    assert sum(counts.values()) == FILES


def test_an_answer_is_a_success_or_a_tuner_error() -> None:
    def fails(error: BaseException) -> object:
        raise error

    assert answered(lambda _: None, Path()) == ""
    assert answered(lambda _: fails(TunerError("no")), Path()) == ""
    assert answered(lambda _: fails(KeyError("x")), Path()).startswith("traceback: KeyError test_fuzz.py:")
    assert answered(lambda _: fails(SystemExit(0)), Path()).startswith("traceback: SystemExit test_fuzz.py:")
