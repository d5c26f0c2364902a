"""Sounds made up for tests: tones and noise, written as files."""

from pathlib import Path

import numpy as np
import pytest

from tuner.arrays import Floats

soundfile = pytest.importorskip("soundfile", reason="sounds need the extra [audio]")
pytest.importorskip("soxr", reason="sounds need the extra [audio]")


def tone(hertz: float, seconds: float = 1.5, rate: int = 16_000, seed: int = 0) -> Floats:
    """Return a tone with a little noise, float32 [samples]."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.01, len(time))
    return (0.5 * np.sin(2 * np.pi * hertz * time) + noise).astype(np.float32)


def write(path: Path, sound: Floats, rate: int = 16_000) -> Path:
    """Write a sound, [samples] or [samples, channels], in the format of the file's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound, rate)
    return path
