"""Rates that were measured on this device are kept for one model at one input size."""

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.planner.device import nominal
from tuner.search.rates import keep_rates, read_rates
from tuner.testing import example_model


def test_rates_of_another_input_size_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    model = example_model(3)
    first, *others = model.blocks
    larger = replace(model, blocks=(replace(first, in_shape=(3, 999, 999)), *others))
    rates = replace(nominal(model), complete=True)
    keep_rates("torch", model, 1, rates)
    assert read_rates("torch", model, 1) == rates
    assert read_rates("torch", larger, 1) is None
