"""A plan as one English sentence."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN
from tuner.plan.example import example_model, example_task
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, LossTerm, RecipePlan, TailEdit
from tuner.plan.text import describe
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
    ("shape", "augment", "text"),
    [
        ((8, 1, 1), ("flip",), "from an 8-bit cache (1 × 1 maps: not augmented), "),
        ((8,), ("flip",), "from an 8-bit cache (vectors: not augmented), "),
        ((8, 2, 2), ("flip",), "from an 8-bit cache augmented by 0.5, "),
        ((5, 8), ("flip",), "from an 8-bit cache (tokens: not augmented), "),
        ((8, 100), ("shift",), "from an 8-bit cache augmented by 0.5, "),
        ((8, 1, 1), (), "from an 8-bit cache, "),
    ],
)
def test_features_that_cannot_be_augmented_are_mentioned(
    shape: tuple[int, ...], augment: tuple[str, ...], text: str
) -> None:
    blocks = tuple(replace(block, in_shape=shape) for block in example_model(2).blocks)
    model, task = replace(example_model(2), blocks=blocks), replace(example_task(), augment=augment)
    assert text in describe(normal_form(TrialPlan(model, task, split=1, cache=CachePlan("cache", 8, 0.5))))


def test_maps_with_channels_last_are_not_augmented() -> None:
    blocks = tuple(replace(block, in_shape=(7, 7, 8), channels_last=True) for block in example_model(2).blocks)
    model, task = replace(example_model(2), blocks=blocks), replace(example_task(), augment=("crop",))
    plan = normal_form(TrialPlan(model, task, split=1, cache=CachePlan("cache", 8, 0.5)))
    assert plan.cache.augment == 0
    assert "from an 8-bit cache (tokens: not augmented), " in describe(plan)


def test_parts_that_a_plan_does_without_are_not_mentioned() -> None:
    plan = TrialPlan(example_model(20), example_task(), recipe=RecipePlan(epochs=1, optimiser="sgd"))
    assert describe(plan) == "train the whole model on 40 local images, 1 epoch SGD 1e-3"


@pytest.mark.parametrize(
    ("rate", "text"), [(1.0, "1"), (0.1, "0.1"), (0.01, "1e-2"), (3.2e-4, "3.2e-4"), (9.99e-4, "1e-3"), (1e-6, "1e-6")]
)
def test_a_learning_rate_is_written_in_the_usual_notation(rate: float, text: str) -> None:
    assert describe(replace(PLAN, recipe=RecipePlan(learning_rate=rate))).endswith(f"AdamW {text}")


def test_micro_batches_are_mentioned_where_there_are_any() -> None:
    plan = replace(PLAN, recipe=RecipePlan(micro_batches=4))
    assert describe(plan).endswith("AdamW 1e-3 in 4 micro-batches")
    assert plan.recipe.part_size == 8


def test_edits_and_exits_are_mentioned() -> None:
    plan = replace(PLAN, shape=(TailEdit("dropout"),), heads=HeadsPlan("with-tail", (Exit(3, 8), Exit(6, 8))))
    assert describe(plan).endswith("AdamW 1e-3, dropout, 2 exits (with-tail; taught by distillation)")


def test_the_terms_of_the_loss_are_mentioned_with_their_weights() -> None:
    plan = replace(PLAN, loss=(LossTerm("distill", 0.5, (("temperature", 2.0),), teacher=True), LossTerm("l2sp", 1e-3)))
    assert describe(plan).endswith("AdamW 1e-3, + 0.5 distill (temperature 2), + 0.001 l2sp")


def test_an_optimiser_of_a_plugin_is_mentioned_by_its_name() -> None:
    assert describe(replace(PLAN, recipe=RecipePlan(optimiser="lion"))).endswith("10 epochs lion 1e-3")


def test_the_sentence_has_an_edits_settings() -> None:
    plan = replace(PLAN, shape=(TailEdit("dropout", (("rate", 0.1),)),))
    assert ", dropout (rate 0.1)" in describe(plan)
