"""A plan as one English sentence, and as TOML: it reads back equal, and a mistake is reported with its place."""

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.plan.plans import PLAN, legal_plans
from tuner.errors import PlanError
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, LossTerm, RecipePlan, Stage, TailEdit
from tuner.plan.text import describe
from tuner.plan.toml import from_toml, to_toml
from tuner.plan.trial import TrialPlan, normal_form


def test_a_plan_is_described_in_one_english_line() -> None:
    task = replace(example_task(), local_train=1192, global_per_class=(40,) * 200)
    plan = TrialPlan(
        example_model(20),
        task,
        data=DataPlan(0.01),
        split=17,
        cache=CachePlan("cache", 4),
        recipe=RecipePlan(epochs=12, optimiser="adamw", learning_rate=1e-3),
    )
    assert describe(plan) == (
        "train last 3 of 20 blocks on 1,192 local + 200 global images (α 1 %, realised 2.5 %) from a 4-bit cache, "
        "12 epochs AdamW 1e-3"
    )


@pytest.mark.parametrize(
    ("block", "augment", "text"),
    [
        ({"in_shape": (8, 1, 1)}, ("flip",), "from an 8-bit cache (1 × 1 maps: not augmented), "),
        ({"in_shape": (8,)}, ("flip",), "from an 8-bit cache (vectors: not augmented), "),
        ({"in_shape": (8, 2, 2)}, ("flip",), "from an 8-bit cache augmented by 0.5, "),
        ({"in_shape": (5, 8)}, ("flip",), "from an 8-bit cache (tokens: not augmented), "),
        ({"in_shape": (7, 7, 8), "channels_last": True}, ("crop",), "from an 8-bit cache (tokens: not augmented), "),
        ({"in_shape": (8, 100)}, ("shift",), "from an 8-bit cache augmented by 0.5, "),
        ({"in_shape": (8, 1, 1)}, (), "from an 8-bit cache, "),
    ],
)
def test_features_that_cannot_be_augmented_are_mentioned(
    block: dict[str, Any], augment: tuple[str, ...], text: str
) -> None:
    blocks = tuple(replace(one, **block) for one in example_model(2).blocks)
    model, task = replace(example_model(2), blocks=blocks), replace(example_task(), augment=augment)
    plan = normal_form(TrialPlan(model, task, split=1, cache=CachePlan("cache", 8, 0.5)))
    assert text in describe(plan)
    assert plan.cache.augment == (0.5 if "augmented by" in text else 0)


def test_parts_that_a_plan_does_without_are_not_mentioned() -> None:
    plan = TrialPlan(example_model(20), example_task(), recipe=RecipePlan(epochs=1, optimiser="sgd"))
    assert describe(plan) == "train the whole model on 40 local images, 1 epoch SGD 1e-3"


@pytest.mark.parametrize(
    ("plan", "ending"),
    [
        *(
            (replace(PLAN, recipe=RecipePlan(learning_rate=rate)), f"AdamW {text}")
            for rate, text in ((1.0, "1"), (0.1, "0.1"), (1e-2, "1e-2"), (3.2e-4, "3.2e-4"), (9.99e-4, "1e-3"))
        ),
        (replace(PLAN, recipe=RecipePlan(learning_rate=1e-6, micro_batches=4)), "AdamW 1e-6 in 4 micro-batches"),
        (replace(PLAN, recipe=RecipePlan(optimiser="lion")), "10 epochs lion 1e-3"),
        (
            replace(PLAN, shape=(TailEdit("dropout"),), heads=HeadsPlan("with-tail", (Exit(3, 8), Exit(6, 8)))),
            "AdamW 1e-3, dropout, 2 exits (with-tail; taught by distillation)",
        ),
        (replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),)), ", dropout (rate 0.1)"),
        (
            replace(
                PLAN, loss=(LossTerm("distill", 0.5, (("temperature", 2.0),), teacher=True), LossTerm("l2sp", 1e-3))
            ),
            "AdamW 1e-3, + 0.5 distill (temperature 2), + 0.001 l2sp",
        ),
    ],
)
def test_what_a_plan_has_is_mentioned_with_its_settings(plan: TrialPlan, ending: str) -> None:
    assert describe(plan).endswith(ending)


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
    assert list(PLAN.settings()) == [stage.value for stage in Stage if stage not in {Stage.SIZE, Stage.LOSS}]
    whole = replace(PLAN, loss=(LossTerm("distill", 0.5),), size=PLAN.model.side)
    assert list(whole.settings()) == [stage.value for stage in Stage]


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
    with pytest.raises(PlanError, match="plan: model is missing"):
        from_toml(text.partition("[model]")[0])
