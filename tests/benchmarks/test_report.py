"""What benchmarks write: their rows and claims, whatever computed them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.report import Claim, finish, interval, median_interval, times_faster


def test_figures_of_numpy_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drop = np.array([0.25, 0.75]).mean()
    finish("x", [{"arm": "a", "drop": drop}], [Claim("small", "0", "0.5", drop <= 1)], tmp_path / "x.json")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["rows"] == [{"arm": "a", "drop": 0.5}]
    assert written["claims"][0]["met"] is True
    assert "met: small" in capsys.readouterr().out


def test_an_interval_is_students() -> None:
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.3027 / 3**0.5), rel=1e-4)
    assert interval([0.25]) == (0.25, math.inf)


def test_how_many_times_faster_is_of_paired_rounds() -> None:
    times, low, high = times_faster({"slow": [2.0, 20.0, 3.0], "fast": [1.0, 10.0, 1.5]}, "slow", "fast")
    assert (times, low, high) == pytest.approx((2.0, 2.0, 2.0))
    times, low, high = times_faster({"slow": [2.0, 4.0], "fast": [1.0, 1.0]}, "slow", "fast")
    assert low < 1 < times < high


def test_the_interval_of_a_median_ignores_how_far_out_a_value_is() -> None:
    values = [float(value) for value in range(1, 100)]
    low, high = median_interval(values)
    assert 35 < low < 50 < high < 65
    assert median_interval([*values[:-1], 1e9]) == (low, high)
