"""Keys of plans: what would train the same has the same key, in every process."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import (
    CachePlan,
    DataPlan,
    EditTraits,
    LossTerm,
    RecipePlan,
    RuntimePlan,
    TailEdit,
    settings_of,
)
from tuner.plan.toml import to_toml
from tuner.plan.trial import TrialPlan


def test_fractions_that_pick_the_same_samples_are_one_trial() -> None:
    assert mixed(0.010).key() == mixed(0.014).key()
    assert mixed(0.010).key() != mixed(0.020).key()
    assert mixed(0.010) != mixed(0.014)


def test_a_key_is_of_what_differs_from_the_defaults() -> None:
    assert PLAN.key() == "bb935e584aca885722cc51b3b01d7a43"  # also where a part has more settings by now
    parts = (DataPlan(), HeadsPlan(), CachePlan(), RecipePlan(), RuntimePlan())
    assert [settings_of(part, hashed=True) for part in parts] == [{}] * len(parts)
    edit = TailEdit("dropout", (("rate", 0.1),), EditTraits(solves=True))
    kept = {"kind": "dropout", "settings": (("rate", 0.1),), "traits": {"solves": True}}
    assert settings_of((edit,), hashed=True) == (kept,)


def test_the_limit_on_memory_is_the_devices() -> None:
    assert replace(PLAN, runtime=RuntimePlan(memory_bytes=10**9)).key() == PLAN.key()


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, split=16),
        replace(PLAN, cache=CachePlan("cache", 8)),
        replace(PLAN, recipe=RecipePlan(epochs=11)),
        replace(PLAN, runtime=RuntimePlan(threads=2)),
        replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),)),
        replace(PLAN, loss=(LossTerm("distill", 0.5),)),
        replace(PLAN, data=DataPlan(weight=2.0)),
        replace(PLAN, recipe=RecipePlan(momentum=0.0)),
        replace(PLAN, heads=HeadsPlan("with-tail", (Exit(3, 8),))),
        replace(PLAN, model=replace(PLAN.model, fingerprint="f" * 32)),
        replace(PLAN, task=replace(PLAN.task, fingerprint="f" * 32)),
    ],
)
def test_plans_that_would_train_something_else_have_another_key(other: TrialPlan) -> None:
    assert other.key() != PLAN.key()


def test_the_key_is_the_same_in_every_process() -> None:
    code = "import sys; from tuner.plan.toml import from_toml; print(from_toml(sys.stdin.read()).key())"
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, input=to_toml(PLAN), capture_output=True, text=True, check=True).stdout.strip()
    assert other == PLAN.key()
    assert len(other) == 32


def test_equal_plans_are_one_entry_of_a_set() -> None:
    assert len({PLAN, replace(PLAN), mixed(0.01)}) == 2
