"""Keys of plans: what would train the same has the same key, in every process; and plans carried to another task."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.errors import PlanError
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import (
    CachePlan,
    DataEdit,
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

EDIT = DataEdit("nearest", (("metric", "cosine"), ("depth", 2)), candidates=3)
EDITED = replace(PLAN, data=DataPlan(0.05, edit=EDIT))


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (mixed(0.010), mixed(0.014)),  # they pick the same samples
        (PLAN, replace(PLAN, runtime=RuntimePlan(memory_bytes=10**9))),  # the limit is the device's
    ],
)
def test_plans_that_would_train_the_same_have_one_key(plan: TrialPlan, other: TrialPlan) -> None:
    assert plan.key() == other.key()
    assert plan != other


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (mixed(0.010), mixed(0.020)),
        *((EDITED, replace(EDITED, data=DataPlan(0.05, edit=edit))) for edit in (
            None, DataEdit("other", EDIT.settings, 3), DataEdit("nearest", (), 3), replace(EDIT, candidates=4)
        )),
        *((PLAN, other) for other in (
            replace(PLAN, split=16),
            replace(PLAN, cache=CachePlan("cache", 8)),
            replace(PLAN, recipe=RecipePlan(epochs=11)),
            replace(PLAN, recipe=RecipePlan(momentum=0.0)),
            replace(PLAN, runtime=RuntimePlan(threads=2)),
            replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),)),
            replace(PLAN, loss=(LossTerm("distill", 0.5),)),
            replace(PLAN, data=DataPlan(weight=2.0)),
            replace(PLAN, heads=HeadsPlan("with-tail", (Exit(3, 8),))),
            replace(PLAN, model=replace(PLAN.model, fingerprint="f" * 32)),
            replace(PLAN, task=replace(PLAN.task, fingerprint="f" * 32)),
        )),
    ],
)  # fmt: skip
def test_plans_that_would_train_something_else_have_another_key(plan: TrialPlan, other: TrialPlan) -> None:
    assert other.key() != plan.key()
    assert len({plan, replace(plan), other}) == 2


def test_a_key_is_of_what_differs_from_the_defaults_and_the_same_in_every_process() -> None:
    assert PLAN.key() == "bb935e584aca885722cc51b3b01d7a43"  # also where a part has more settings by now
    parts = (DataPlan(), HeadsPlan(), CachePlan(), RecipePlan(), RuntimePlan())
    assert [settings_of(part, hashed=True) for part in parts] == [{}] * len(parts)
    edit = TailEdit("dropout", (("rate", 0.1),), EditTraits(solves=True))
    kept = {"kind": "dropout", "settings": (("rate", 0.1),), "traits": {"solves": True}}
    assert settings_of((edit,), hashed=True) == (kept,)
    code = "import sys; from tuner.plan.toml import from_toml; print(from_toml(sys.stdin.read()).key())"
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, input=to_toml(PLAN), capture_output=True, text=True, check=True).stdout.strip()
    assert other == PLAN.key()


def test_decisions_are_carried_to_another_task_and_to_no_model_of_another_depth() -> None:
    task = replace(example_task(), name="another", local_train=7)
    carried = replace(EDITED, data=replace(EDITED.data, share=0.5)).carried_to(example_model(20), task)
    assert (carried.task.name, carried.split, carried.recipe) == ("another", 17, PLAN.recipe)
    assert carried.data == DataPlan(0.05, 1.0, EDIT)  # all samples
    with pytest.raises(PlanError, match="a plan for 20 blocks cannot be used for example, which has 4"):
        PLAN.carried_to(example_model(4), example_task())
