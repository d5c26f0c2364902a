"""Replays: records with and without scales of their own, written and read again."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tuner.bundle.replay import Replay
from tuner.store.codec import Codec, calibrate

SHAPE = (3, 5, 5)


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_replay_comes_back_as_it_was(tmp_path: Path, *, per_sample: bool) -> None:
    maps = np.random.default_rng(0).random((7, *SHAPE), dtype=np.float32)
    codec = Codec(1, SHAPE, *calibrate(maps), per_sample)
    replay = Replay(codec, codec.encode(maps), np.arange(7))
    replay.save(tmp_path / "replay")
    with safe_open(tmp_path / "replay", "numpy") as file:
        assert file.metadata()["format"] == "1"
    rows = np.array([6, 0, 6])
    loaded = Replay.load(tmp_path / "replay")
    np.testing.assert_array_equal(loaded.read(rows), replay.read(rows))
    np.testing.assert_array_equal(loaded.labels, replay.labels)
