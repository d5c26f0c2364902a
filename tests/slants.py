"""A regression on real data: the slant of handwritten digits in degrees, by the moments of their ink."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from tuner.arrays import Floats

#: The model knows the slant of 0 to 6; the user writes 7 to 9.
TASK = """
name = "slant"

[model]
factory = "tuner.models.digits:build"
arguments = { outputs = 1 }
pretrain = { epochs = 3, learning_rate = 3e-3 }

[global]
kind = "arrays"
train = "global.npz"
val = "global.npz"

[local]
kind = "arrays"
train = "local.npz"
val = "local.npz"
test = "local.npz"

[loss]
kind = "regression"
delta = 1.0
"""


def slants(images: Floats) -> Floats:
    """Return the angle of each digit's ink against the vertical, in degrees: float32 [n] of images [n, 8, 8]."""
    rows, columns = np.mgrid[:8, :8]
    ink = images / images.sum(axis=(1, 2), keepdims=True)
    down, across = (
        at - (ink * at).sum(axis=(1, 2))[:, None, None] for at in (rows.astype(float), columns.astype(float))
    )
    moment = (ink * down * across).sum(axis=(1, 2)) / (ink * down * down).sum(axis=(1, 2))
    angles: Floats = np.degrees(np.arctan(moment)).astype(np.float32)
    return angles


def write_task(folder: Path, text: str = TASK) -> Path:
    """Write the task and its data; return the task file."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    y, new = slants(images), digits.target >= 7
    for name, rows, counts in (
        ("global", np.flatnonzero(~new), (600, 300, 0)),
        ("local", np.flatnonzero(new), (120, 200, 100)),
    ):
        arrays, begin = {"classes": np.array(["slant"])}, 0
        for part, count in zip(("train", "val", "test"), counts, strict=True):
            chosen = rows[begin : begin + count]
            arrays |= {f"x_{part}": images[chosen, None], f"y_{part}": y[chosen]} if count else {}
            begin += count
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub takes no mapping
    path = folder / "task.toml"
    path.write_text(text)
    return path
