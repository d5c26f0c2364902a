"""What a study tries first: plans of a prior, which somebody else wrote, and the best ones of an earlier run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.plan.plans import PLAN
from tuner.errors import SpaceError
from tuner.results.prior.earlier import MOST_PLANS, Earlier, earlier_plans, newest_run, remember_run
from tuner.results.prior.file import Expected, Prior, PriorPlan, read_prior
from tuner.results.run import Run
from tuner.results.scores.likeness import kind_of_task, likeness

OLD = Path(__file__).parents[2] / "fixtures"
HERE = kind_of_task(PLAN.model, PLAN.task, "aarch64, 4 cores")


def test_a_task_is_most_alike_itself_and_less_with_every_difference() -> None:
    assert likeness(HERE, HERE) == 1.0
    assert likeness(HERE, replace(HERE, device="")) == 1.0  # where it is not known
    near = likeness(HERE, replace(HERE, local=2 * HERE.local))
    far = likeness(HERE, replace(HERE, local=20 * HERE.local))
    assert 1 > near > far > likeness(HERE, replace(HERE, local=20 * HERE.local, loss="regression")) > 0
    for other in (
        replace(HERE, classes=100 * HERE.classes),
        replace(HERE, family="another"),
        replace(HERE, samples="windows"),
        replace(HERE, old=0),
        replace(HERE, device="x86_64, 2 cores"),
        replace(HERE, flops=HERE.flops // 7),
    ):
        assert likeness(HERE, other) == likeness(other, HERE) < 1


TASK = """
[[task]]
trials = 4
area = 0.5
untouched = { local_accuracy = 0.1 }
kind = { samples = "images", loss = "single-label", local = 9, old = 9, classes = 3, new_classes = 1, blocks = 3, \
flops = 9, parameters = 9 }
"""
EXPECTED = "[[plan]]\nknobs = {}\n[[plan.expected]]\ntask = 1\nnear = 2.0\non_front = 0.5\nlocal_accuracy = 0.5\n"


def test_a_prior_that_somebody_wrote_needs_knobs_only(tmp_path: Path) -> None:
    (tmp_path / "prior.toml").write_text("[[plan]]\nknobs = { 'recipe.epochs' = 3, 'cache.by' = 'cache' }\n")
    assert read_prior(tmp_path / "prior.toml") == Prior((), (PriorPlan({"recipe.epochs": 3, "cache.by": "cache"}),))
    (tmp_path / "prior.toml").write_text(TASK + EXPECTED)
    assert read_prior(tmp_path / "prior.toml").plan[0].expected == (Expected(1, 2.0, 0.5, 0.5),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("plan = 3", "plan: "),
        ("not TOML", "not valid TOML"),
        ("", r"there must be 1 to 1000 \[\[plan\]\] tables, got 0"),
        ("format = 2\n[[plan]]\nknobs = {}", "format must be 1, got 2: use the version"),
        ("[[plan]]\nepochs = 3", "plan.0.knobs"),
        ("[[plan]]\nknobs = { a = [1] }", "plan.0.knobs.a"),
        ("[[plan]]\nknobs = { a = nan }", "plan.0.knobs.a"),
        ("[[plan]]\nknobs = { a = 1979-05-27 }\ncode = 'import os'", "plan.0.code"),
        ("[[plan]]\nknobs = {}\ntrains = { depth = 2.0, flops = 0.5 }", "0.trains.depth: .* or equal to 1, got 2"),
        (TASK + EXPECTED.replace("task = 1", "task = 2"), r"plan.0.expected.0.task must be in \[1, 1\], got 2"),
        (TASK + EXPECTED.replace("= 2.0", "= -2.0"), "plan.0.expected.0.near: .* than or equal to 0, got -2"),
        (TASK + EXPECTED.replace("on_front = 0.5", "on_front = 7"), "expected.0.on_front: .* or equal to 1, got 7"),
        (TASK.replace("area = 0.5", "area = 0") + EXPECTED, "task.0.area: .* greater than 0"),
        (TASK.replace("local = 9", "local = -9") + EXPECTED, "task.0.kind must have no negative number"),
        (TASK.replace("0.1", "inf") + EXPECTED, "task.0.untouched"),
        ("[[plan]]\nknobs = {}\n" * 1001, "there must be 1 to 1000"),
    ],
)  # fmt: skip
def test_what_is_no_prior_is_refused_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "prior.toml").write_text(text)
    with pytest.raises(SpaceError, match=reason) as refused:
        read_prior(tmp_path / "prior.toml")
    assert "\n" not in str(refused.value)


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


def test_the_newest_run_is_that_of_the_same_task_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    model, digits = PLAN.model, OLD / "digits" / "run"
    assert newest_run(model, "a") is None
    remember_run(model, "a", tmp_path / "gone")
    assert newest_run(model, "a") is newest_run(model) is None
    remember_run(model, "a", digits)
    found = newest_run(model, "a")
    assert found is not None
    assert found.folder == digits
    assert newest_run(model, "b") is None
    other = replace(model, fingerprint="f" * 32, outputs=99)
    assert newest_run(other, "a") is None
    assert newest_run(other) is not None  # other weights and labels, which have to be asked for by name
