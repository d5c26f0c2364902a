"""The ring: bounded, private, and whole after a kill."""

import os
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.killed import killed, ring_samples
from tuner.errors import StoreError
from tuner_store.held import clear_ring
from tuner_watch.ring import MOST_MODELS, Ring


def picture(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((3, 8, 8), number, np.uint8)


def test_samples_come_back_oldest_first_with_their_labels_and_recordings(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    given = [("a", "r"), (None, ""), ("c", "")]
    assert [ring.add(picture(number), *one) for number, one in enumerate(given)] == [True] * 3
    samples = Ring(tmp_path / "ring").load()
    assert [(sample.label, sample.recording) for sample in samples] == given
    assert all((sample.sample == picture(number)).all() for number, sample in enumerate(samples))
    assert [sample.sample.dtype for sample in samples] == [np.uint8] * 3


def test_a_sample_is_kept_once_and_may_get_a_label_later(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    assert [ring.add(picture(1), label) for label in (None, None, "a", None, "b")] == [True] + [False] * 4
    assert [sample.label for sample in ring.load()] == ["b"]


def test_the_oldest_go_above_the_bounds(tmp_path: Path) -> None:
    few = Ring(tmp_path / "few", most_samples=3)
    small = Ring(tmp_path / "small", most_bytes=1000)
    for number in range(10):
        few.add(picture(number))
        small.add(picture(number))
    assert [int(sample.sample.max()) for sample in few.load()] == [7, 8, 9]
    assert 0 < small.size_bytes <= 1000
    assert int(small.load()[-1].sample.max()) == 9


def test_what_comes_within_one_tick_of_the_clock_is_distinguished() -> None:
    """A file system in memory dates changes by the kernel's ticks, of which several samples share one."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder in it is made below
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        ring, other = (Ring(Path(folder) / "ring", most_samples=5) for _ in range(2))
        for number in range(40):
            (ring, other)[number % 2].add(picture(number))
            assert len(ring) == len(other) == min(number + 1, 5)
        assert [int(sample.sample.max()) for sample in ring.load()] == [35, 36, 37, 38, 39]


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    before = os.umask(0)
    try:
        ring.add(picture(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(ring.folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in ring.folder.iterdir()] == [0o600]


def test_forgetting_overwrites_and_removes_everything(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    for number in range(3):
        ring.add(picture(number))
    kept = ring.folder / "link"
    kept.hardlink_to(next(ring.folder.glob("*.sample")))
    (ring.folder / ".torn.sample.part").write_bytes(b"half")
    assert clear_ring(ring.folder) == 3
    assert list(ring.folder.iterdir()) == [kept]
    assert set(kept.read_bytes()) == {0}
    assert len(ring) == 0
    assert ring.add(picture(1))
    clear_ring(ring.folder)  # by another process
    assert ring.load() == []
    assert len(ring) == 0


def test_a_damaged_sample_is_left_out(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    for number in range(3):
        ring.add(picture(number))
    first, second, _ = sorted(ring.folder.iterdir())
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    second.write_bytes(second.read_bytes()[:5])
    assert [int(sample.sample.max()) for sample in ring.load()] == [2]
    assert len(ring) == 1


def test_a_full_disk_is_reported_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(tmp_path / "ring")
    ring.add(picture(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match=r"No space left on device\): check its permissions, and free space"):
            ring.add(picture(2))
    assert len(list(ring.folder.iterdir())) == 1
    assert [int(sample.sample.max()) for sample in ring.load()] == [1]


@pytest.mark.slow
def test_a_kill_loses_at_most_the_sample_being_written(tmp_path: Path) -> None:
    for _ in killed(5, 0.1, ring_samples, tmp_path / "ring"):
        samples = Ring(tmp_path / "ring").load()
        assert len(samples) == len(list((tmp_path / "ring").glob("[!.]*.sample")))
        for sample in samples:
            number = int(sample.label or -1)
            assert (sample.sample == number % 251 + number % 7).all()
    assert len(samples) >= 5  # one in each life, however slow the machine


def test_a_ring_that_is_emptied_while_samples_come_keeps_whole_ones_alone(tmp_path: Path) -> None:
    ring, other = Ring(tmp_path / "ring"), Ring(tmp_path / "ring")

    def add(number: int) -> None:
        with suppress(StoreError):  # it was removed while it was written
            ring.add(np.full(3, number, np.float32))

    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(lambda: list(map(add, range(300))))
        while not adding.done():
            clear_ring(other.folder)
    adding.result()
    add(300)
    kept = [int(sample.sample[0]) for sample in ring.load()]
    assert kept == sorted(kept)
    assert kept[-1] == 300
    clear_ring(other.folder)
    assert not list((tmp_path / "ring").iterdir())


def test_a_ring_knows_what_the_latest_models_were_trained_on(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    ring.add(np.zeros(3, np.float32))
    for number in range(MOST_MODELS + 1):
        ring.note_learned(f"model {number}", [f"sample {number}", "sample"])
    assert ring.learned("model 0") == frozenset()
    assert ring.learned("model 1") == {"sample 1", "sample"}
    assert len(ring) == 1
    assert clear_ring(ring.folder) == 1
    assert ring.learned("model 1") == frozenset()
    assert not list(ring.folder.iterdir())


def test_the_folder_of_all_rings_is_private_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        Ring(tmp_path / "rings" / "one").add(picture(0))
    finally:
        os.umask(mask)
    assert not [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
