"""Numbers that scale inputs: mean and std in another unit are refused, statistics are kept in full, NaN is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.errors import TaskError
from tuner.task import Task, read_npy
from tuner.task.inputs import input_kind
from tuner.task.spec import InputSpec

Load = Callable[..., Task]
ARRAYS: dict[str, Any] = {
    "local.kind": "arrays",
    "local.train": "d.npz",
    "local.val": None,
    "input.size": None,
    "input.mean": None,
    "input.std": None,
}


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375], r"mean = \[0\.485, 0\.456, 0\.406\], std = \[0\.229"),
        ([127.5], [127.5], r"mean = \[0\.5\], std = \[0\.5\]"),
        ([0.0], [255.0], r"input\.std must be of pixels from 0 to 1, so at most 1, got \[255\.0\]"),
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], ""),
        ([0.0], [1.0], ""),
        ([0.0], [0.00392], ""),
    ],
)
def test_mean_and_std_of_pixels_to_255_are_refused(
    images: Path, load: Load, mean: list[float], std: list[float], message: str
) -> None:
    changes = {"input.mean": mean, "input.std": std}
    if not message:
        assert load(changes).input.mean == tuple(mean)
        return
    with pytest.raises(TaskError, match=message):
        load(changes)


@pytest.mark.parametrize(("kind", "is_refused"), [(np.uint8, True), (np.float32, False)])
def test_arrays_of_pixels_are_scaled_by_255_and_others_are_not(
    tmp_path: Path, load: Load, kind: type[np.generic], *, is_refused: bool
) -> None:
    np.savez(tmp_path / "d.npz", x=np.full((8, 1, 4, 4), 7).astype(kind), y=np.arange(8) % 2)
    changes = {**ARRAYS, "input.mean": [127.5], "input.std": [127.5]}
    if is_refused:
        with pytest.raises(TaskError, match="must be of pixels from 0 to 1"):
            load(changes)
    else:
        assert load(changes).input.mean == (127.5,)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("key", ["x", "x_val"])
def test_a_value_that_is_not_finite_is_named_by_its_sample(tmp_path: Path, load: Load, value: float, key: str) -> None:
    x, y = np.zeros((12, 1, 4, 4), np.float32), np.arange(12) % 2
    arrays: dict[str, Any] = {"x": x, "y": y, "x_val": x.copy(), "y_val": y}
    arrays[key][7, 0, 2, 1] = value
    arrays[key][9] = value
    np.savez(tmp_path / "d.npz", **arrays)
    pattern = rf"d\.npz:{key}\[7\] must hold finite numbers, but has {value} at \[0, 2, 1\], and 1 more samples"
    with pytest.raises(TaskError, match=pattern):
        load({**ARRAYS, "local.val": "d.npz"})


def test_a_file_with_nan_is_not_predicted(tmp_path: Path) -> None:
    np.save(tmp_path / "nan.npy", np.array([[[1.0, np.nan]]], np.float32))
    with pytest.raises(TaskError, match=r"nan\.npy must hold finite numbers, but has nan at \[0, 0, 1\]"):
        input_kind("arrays").read(tmp_path / "nan.npy", InputSpec("arrays"))
    assert read_npy(tmp_path / "nan.npy").shape == (1, 1, 2)


@pytest.mark.parametrize(
    ("mean", "std"), [(101_325.37, 0.8), (101_325.37, 0.05), (273.15, 0.002), (-4e6, 3.0), (0.0, 1e-6), (1e-5, 1.0)]
)
def test_a_barometers_statistics_are_kept_in_full(tmp_path: Path, load: Load, mean: float, std: float) -> None:
    generator = np.random.default_rng(0)
    x = (mean + std * generator.normal(size=(10, 1, 500))).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, y_train=np.arange(10) % 2, x_val=x[:4], y_val=np.arange(4) % 2)
    task = load({**ARRAYS, "local.kind": "signals", "local.val": "d.npz", "input.window": 100})
    train = x.astype(np.float64)
    assert task.input.mean == pytest.approx((train.mean(),), rel=1e-12, abs=1e-12)
    assert task.input.std == pytest.approx((train.std(),), rel=1e-6)
    inputs = task.batch(task.local.train, range(len(task.local.train)))
    grid = float(np.spacing(np.float32(abs(mean)))) / std  # what float32 cannot hold
    assert abs(inputs.mean()) < 0.01 + grid
    assert inputs.std() == pytest.approx(1, abs=0.05 + grid)
