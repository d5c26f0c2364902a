"""Plans of earlier runs that a study tries first."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN
from tuner.cli.app import call
from tuner.errors import SpaceError
from tuner.plan.parts import Scalar
from tuner.results.prior import MOST_PLANS, Prior, newest_run, prior_of, read_prior, remember_run, write_prior
from tuner.results.run import Run

PLANS: tuple[Mapping[str, Scalar], ...] = (
    {"recipe.epochs": 3, "cache.by": "cache", "gdm.alpha": 0.05, "recipe.freeze_bn": True},
    {"recipe.epochs": 5},
)


def run_of(task: str, knobs: dict[int, int], knee: int) -> Run:
    """Return what a prior reads of a run: its shortlist, each member with its epochs, and its task."""
    made = SimpleNamespace(
        shortlist=tuple(sorted(knobs)),
        knee=knee,
        info=SimpleNamespace(identity=SimpleNamespace(task=task)),
        record=lambda trial: SimpleNamespace(knobs={"recipe.epochs": knobs[trial]}),
    )
    return cast("Run", made)


def epochs(prior: Prior) -> list[Any]:
    return [plan["recipe.epochs"] for plan in prior.plans]


def test_knees_come_first_then_each_runs_next_and_equal_plans_once() -> None:
    one, two = run_of("a", {1: 10, 4: 40, 7: 70}, knee=4), run_of("b", {2: 20, 3: 10}, knee=2)
    assert epochs(prior_of([one, two])) == [40, 20, 10, 70]
    assert prior_of([one, two]).task == ""
    assert prior_of([one]).task == "a"
    many = run_of("a", {number: number for number in range(20)}, knee=19)
    assert epochs(prior_of([many])) == [19, 0, 1, 2, 3, 4]
    assert MOST_PLANS == 6


def test_a_prior_reads_back_as_it_was_written(tmp_path: Path) -> None:
    write_prior(tmp_path / "prior.toml", Prior(PLANS, "task"))
    assert read_prior(tmp_path / "prior.toml") == Prior(PLANS)


@pytest.mark.parametrize("text", ["plan = 3", "[[plan]]\nepochs = 3", "[[plan]]\nknobs = { a = [1] }", "not TOML"])
def test_what_is_no_prior_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "prior.toml").write_text(text)
    with pytest.raises(SpaceError, match=r"prior\.toml"):
        read_prior(tmp_path / "prior.toml")


def test_no_run_is_the_newest_where_none_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    assert newest_run(PLAN.model) is None
    remember_run(PLAN.model, tmp_path / "gone")
    assert newest_run(PLAN.model) is None
    other = replace(PLAN.model, fingerprint="f" * 32, outputs=99)
    assert {path.name for path in (tmp_path / "cache" / "runs").iterdir()} != set()
    remember_run(other, tmp_path / "elsewhere")
    assert len(list((tmp_path / "cache" / "runs").iterdir())) == 1  # other weights and labels are of the same family


def test_a_prior_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["prior", "build"]) == 2
    assert "needs at least one run" in capsys.readouterr().err
