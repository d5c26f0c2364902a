"""A study that starts from the front of an earlier run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.cli.app import call
from tuner.results.prior.file import Prior, PriorPlan, write_prior
from tuner.results.run import Run

SPACE = """
strategies = ["gdm", "freeze", "cache"]
prior = "prior.toml"
[knobs.recipe]
epochs = { low = 1, high = 20 }
"""


@pytest.mark.slow
def test_the_second_run_begins_with_the_best_of_the_first(tune: Callable[..., Run], tmp_path: Path) -> None:
    first = tune(trials=3)
    second = tune(trials=1, out=tmp_path / "second")
    assert first.best is not None
    assert second.records[0].knobs == first.record(first.best).knobs
    afresh = tune(trials=1, out=tmp_path / "afresh", earlier="none", seed=5)
    assert afresh.records[0].knobs == first.records[0].knobs  # the first anchor
    named = tune(trials=1, out=tmp_path / "named", earlier=tmp_path / "run", deterministic=True)
    assert named.records[0].knobs == {**second.records[0].knobs, "runtime.threads": 1}
    alone = tune(trials=1, out=tmp_path / "alone", deterministic=True)
    assert alone.records[0].knobs == {**afresh.records[0].knobs, "runtime.threads": 1}


@pytest.mark.slow
def test_a_run_tries_the_plans_of_a_prior_first_and_says_so(
    tune: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune(trials=4)
    file = tmp_path / "prior.toml"
    plans = tuple(PriorPlan(run.record(trial).knobs) for trial in run.front)
    write_prior(file, Prior((), plans))
    named = tune(trials=2, out=tmp_path / "named", deterministic=True, prior=file)
    assert named.records[0].prior is not None
    best = plans[named.records[0].prior - 1]
    assert named.records[0].knobs == {**best.knobs, "runtime.threads": 1}
    assert named.records[1].prior is None  # of two trials one
    again = tune(SPACE, trials=1, out=tmp_path / "again", deterministic=True)
    assert again.records[0].knobs == named.records[0].knobs
    capsys.readouterr()
    assert call(["show", str(named.folder), "--trials"]) == 0
    assert f"plan {named.records[0].prior} of the prior" in capsys.readouterr().out
    assert call(["show", str(named.folder)]) == 0
    assert "1 began with plans of the prior" in capsys.readouterr().out
