"""A study that starts from the front of an earlier run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.results.run import Run

SPACE = """
strategies = ["gdm", "freeze", "cache"]
prior = "prior.toml"
[knobs.recipe]
epochs = { low = 1, high = 20 }
"""


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


@pytest.mark.slow
def test_a_space_names_a_prior_that_is_built_of_runs(
    tune: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune(trials=4)
    assert call(["prior", "build", str(run.folder), "--out", str(tmp_path / "prior.toml"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"prior": str(tmp_path / "prior.toml"), "plans": len(run.shortlist)}
    again = tune(SPACE, trials=1, out=tmp_path / "again", deterministic=True)
    assert run.knee is not None
    assert again.records[0].knobs == {**run.record(run.knee).knobs, "runtime.threads": 1}
