"""Rates that were measured on this device are kept, for one model at one input size; measuring is cut short."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.search.conftest import Moods, Tune
from tuner.machine.control_group import usable_processors
from tuner.plan.example import example_model
from tuner.planner.device import COMPLETE, nominal
from tuner.results.records.trial import SCORED
from tuner.search.estimate.rates import REPEATS, keep_rates, rates_of, read_rates


def test_rates_of_another_input_size_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    model = example_model(3)
    first, *others = model.blocks
    larger = replace(model, blocks=(replace(first, in_shape=(3, 999, 999)), *others))
    rates = replace(nominal(model), complete=True)
    keep_rates("torch", model, 1, rates)
    assert read_rates("torch", model, 1) == rates
    assert read_rates("torch", larger, 1) is None


def test_the_time_of_a_prediction_is_measured_again_a_few_times_and_the_least_is_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.search.estimate.rates.REPEATS", REPEATS)  # as imported: other tests measure once
    model = example_model(3)
    kept = replace(nominal(model), latency_seconds=0.208)  # the device was busy
    busy, slower, none, idle = [0.01, 0.03, 0.011, 0.02], [0.3] * REPEATS, [0.0] * REPEATS, [0.0085] * REPEATS
    seconds, known = [*busy, *slower, *none, *idle], list[set[str]]()

    class Session:
        """Takes another time for each prediction."""

        model = example_model(3)

        def measure(self, _threads: int, _within: float, given: Mapping[str, float], _report: Any = None) -> Any:
            known.append(set(given))
            return replace(nominal(model), latency_seconds=seconds.pop(0), step_seconds=99.0)

    keep_rates("torch", model, usable_processors(), kept)
    for latency, is_busy in ((0.0105, True), (0.0105, True), (0.0105, True), (0.0085, False)):
        found = rates_of(Session(), "torch", measure=True)  # type: ignore[arg-type]  # it measures, no more
        assert found == replace(kept, latency_seconds=found.latency_seconds, latency_busy=is_busy)
        assert found.latency_seconds == pytest.approx(latency)
        assert found == read_rates("torch", model, usable_processors())
    assert known[0] >= {"forward 0", "train 2", "step", COMPLETE}
    assert "latency" not in known[0]


def test_measuring_stops_at_a_tenth_of_the_time_and_the_next_run_continues_it(
    tune: Tune, moods: Moods, cache: Path, heard: Any
) -> None:
    """The made-up device is stuck for an hour after its first forward pass, once."""
    moods("slow-device")
    run = tune(trials=1, time="40s", listener=heard)
    assert [record.state in SCORED for record in run.records] == [True]
    (file,) = (cache / "rates").iterdir()
    assert json.loads(file.read_text()).keys() == {"forward 0"}
    assert [line for line in heard.lines if line.startswith("measured 1 of 8 passes")]
    tune(trials=2, time="2m", resume=True)
    (file,) = (cache / "rates").iterdir()  # the figures are done with
    assert not file.name.endswith(".figures.json")


def test_a_measuring_that_the_user_ends_continues_where_it_was(cache: Path) -> None:
    model, calls = example_model(3), list[dict[str, float]]()

    class Session:
        """Is interrupted after each figure."""

        model = example_model(3)

        def measure(self, _threads: int, _within: float, known: Mapping[str, float], report: Any) -> Any:
            calls.append(dict(known))
            if len(known) == model.num_blocks:
                return nominal(model)
            report({"figure": f"forward {len(known)}", "value": 0.5})
            raise KeyboardInterrupt

        def first_steps(self, _threads: int, _within: float) -> Any:
            return nominal(model).first

    for _ in range(model.num_blocks):
        with pytest.raises(KeyboardInterrupt):
            rates_of(Session(), "torch", measure=True)  # type: ignore[arg-type]  # it measures, no more
    assert rates_of(Session(), "torch", measure=True) == nominal(model)  # type: ignore[arg-type]  # likewise
    assert [len(known) for known in calls] == list(range(model.num_blocks + 1))
