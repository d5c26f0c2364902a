"""Plans of an earlier run that a study tries first."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN
from tuner.results.prior.earlier import MOST_PLANS, Earlier, earlier_plans, newest_run, remember_run
from tuner.results.run import Run


def run_of(task: str, knobs: Mapping[int, int], best: int) -> Run:
    """Return what is read of a run: its shortlist, each member with its epochs, and its task."""
    made = SimpleNamespace(
        shortlist=tuple(sorted(knobs)),
        best=best,
        info=SimpleNamespace(identity=SimpleNamespace(task=task)),
        record=lambda trial: SimpleNamespace(knobs={"recipe.epochs": knobs[trial]}),
    )
    return cast("Run", made)


def epochs(earlier: Earlier) -> list[Any]:
    return [plan["recipe.epochs"] for plan in earlier.plans]


def test_the_best_comes_first_and_equal_plans_once() -> None:
    one = earlier_plans(run_of("a", {1: 10, 4: 40, 6: 10, 7: 70}, best=4))
    assert epochs(one) == [40, 10, 70]
    assert one.task == "a"
    many = run_of("a", {number: number for number in range(20)}, best=19)
    assert epochs(earlier_plans(many)) == [19, 0, 1, 2, 3, 4]
    assert MOST_PLANS == 6


def test_no_run_is_the_newest_where_none_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    assert newest_run(PLAN.model) is None
    remember_run(PLAN.model, tmp_path / "gone")
    assert newest_run(PLAN.model) is None
    other = replace(PLAN.model, fingerprint="f" * 32, outputs=99)
    assert {path.name for path in (tmp_path / "cache" / "runs").iterdir()} != set()
    remember_run(other, tmp_path / "elsewhere")
    assert len(list((tmp_path / "cache" / "runs").iterdir())) == 1  # other weights and labels are of the same family
