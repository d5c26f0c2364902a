"""What benchmarks write: their rows and claims, whatever computed them."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.report import Claim, finish, interval


def test_figures_of_numpy_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drop = np.array([0.25, 0.75]).mean()
    finish("x", [{"arm": "a", "drop": drop}], [Claim("small", "0", "0.5", "quality", drop <= 1)], tmp_path / "x.json")
    written = json.loads((tmp_path / "x.json").read_text())
    assert written["rows"] == [{"arm": "a", "drop": 0.5}]
    assert written["claims"][0]["met"] is True
    assert "met: small" in capsys.readouterr().out


def test_an_interval_is_students() -> None:
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.3027 / 3**0.5), rel=1e-4)
