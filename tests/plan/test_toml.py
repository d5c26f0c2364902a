"""A plan as TOML: it reads back equal, and a mistake is reported with its place."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given

from tests.plan.plans import PLAN, legal_plans
from tuner.errors import PlanError
from tuner.plan.parts import LossTerm, Stage
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan


@pytest.mark.slow
@given(legal_plans())
def test_any_plan_reads_back_equal_from_toml(plan: TrialPlan) -> None:
    back = from_toml(to_toml(plan))
    assert back == plan
    assert back.key() == plan.key()
    assert hash(back) == hash(plan)


def test_the_toml_begins_with_the_sentence_and_the_decisions() -> None:
    lines = to_toml(PLAN).splitlines()
    assert lines[0] == f"# {describe(PLAN)}"
    assert lines[1] == "format = 1"
    assert list(tomllib.loads(to_toml(PLAN)))[-2:] == ["task", "model"]
    assert list(PLAN.settings()) == [stage.value for stage in Stage if stage is not Stage.LOSS]
    assert list(replace(PLAN, loss=(LossTerm("distill", 0.5),)).settings()) == [stage.value for stage in Stage]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "format must be 1, got 2: use the version of tuner that wrote it"),
        ("format = 1", "", "format must be 1, got None"),
        ("epochs = 10", "epoch = 10", r"unknown key 'recipe.epoch' \(did you mean 'epochs'\?\)"),
        ("outputs = 10", "output = 10", r"unknown key 'model.output' \(did you mean 'outputs'\?\)"),
        ("outputs = 10", "", "model.outputs is missing"),
        ("epochs = 10", 'epochs = "many"', "recipe.epochs: .* got 'many'"),
        ("epochs = 10", "epochs = 0", "recipe.epochs must be at least 1, got 0"),
        ('optimiser = "adamw"', "optimiser = 3", "recipe.optimiser: .* got 3"),
        ("split = 17", "split = ", "plan: not valid TOML"),
        ("epochs = 10", "epochs = true", "recipe.epochs: .* got True"),
        ("epochs = 10", "epochs = '10'", "recipe.epochs: .* got '10'"),
        ("epochs = 10", "epochs = 1.5", "recipe.epochs: .* got 1.5"),
        ("epochs = 10", f"epochs = {'9' * 5001}", "plan: not valid TOML .an integer must fit into 64 bits"),
        ("split = 17", f"split = {'[' * 5000}", "plan: not valid TOML .arrays and tables may be nested 32 deep"),
    ],
)
def test_a_plan_that_cannot_be_read_is_reported_with_the_place(old: str, new: str, message: str) -> None:
    text = to_toml(PLAN)
    assert old in text
    with pytest.raises(PlanError, match=message):
        from_toml(text.replace(old, new, 1))


def test_a_missing_part_is_an_error() -> None:
    with pytest.raises(PlanError, match="plan: model is missing"):
        from_toml(to_toml(PLAN).partition("[model]")[0])
