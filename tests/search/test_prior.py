"""A study that starts from the front of an earlier run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.results.run import Run


@pytest.mark.slow
def test_the_second_run_begins_with_the_knee_of_the_first(tune: Callable[..., Run], tmp_path: Path) -> None:
    first = tune(trials=3)
    second = tune(trials=1, out=tmp_path / "second")
    assert first.knee is not None
    assert second.records[0].knobs == first.record(first.knee).knobs
    afresh = tune(trials=1, out=tmp_path / "afresh", earlier="none", seed=5)
    assert afresh.records[0].knobs == first.records[0].knobs  # the first anchor
    named = tune(trials=1, out=tmp_path / "named", earlier=tmp_path / "run", deterministic=True)
    assert named.records[0].knobs == {**second.records[0].knobs, "runtime.threads": 1}
    alone = tune(trials=1, out=tmp_path / "alone", deterministic=True)
    assert alone.records[0].knobs == {**afresh.records[0].knobs, "runtime.threads": 1}
