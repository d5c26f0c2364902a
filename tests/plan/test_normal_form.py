"""The normal form of a plan: idle settings are left out, and settings with effect stay."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.plan.plans import PLAN, legal_plans, mixed
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, EditTraits, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan, normal_form

IN_INT8 = RuntimePlan(precision="int8")
EXITS_ALONE = replace(PLAN, heads=HeadsPlan("exits-only", (Exit(3, 8),)))
BY_LABELS = HeadsPlan("with-tail", (Exit(3, 8),), supervised=1.0, distilled=0.0)


def test_a_batch_is_cut_into_no_more_parts_than_it_has_samples() -> None:
    plan = replace(PLAN, recipe=RecipePlan(batch_size=2, micro_batches=8))
    assert normal_form(plan).recipe.micro_batches == 2


@pytest.mark.parametrize(
    "whole",
    [
        {"recipe": RecipePlan(micro_batches=4, freeze_bn=False)},
        {"recipe": RecipePlan(micro_batches=4), "shape": (TailEdit("width", traits=EditTraits(trains_norms=True)),)},
        {"recipe": RecipePlan(micro_batches=4), "heads": HeadsPlan("exits-only", (Exit(3, 8),))},
    ],
)
def test_a_batch_whose_norms_train_is_not_cut(whole: dict[str, Any]) -> None:
    assert normal_form(replace(PLAN, **whole)).recipe.micro_batches == 1


def test_exits_alone_leave_the_whole_chain_frozen() -> None:
    heads = HeadsPlan("exits-only", (Exit(3, 8),))
    plans = [normal_form(replace(PLAN, heads=heads, split=split)) for split in (0, 7, 20)]
    assert {plan.split for plan in plans} == {20}
    assert len({plan.key() for plan in plans}) == 1


def test_with_a_tail_exits_sit_below_it() -> None:
    heads = HeadsPlan("with-tail", (Exit(3, 8), Exit(17, 8), Exit(18, 8)))
    assert [one.block for one in normal_form(replace(PLAN, heads=heads)).heads.exits] == [3, 17]
    assert normal_form(replace(PLAN, heads=heads, split=2)) == replace(PLAN, split=2)


def test_without_labels_exits_learn_from_the_final_head() -> None:
    heads = HeadsPlan("exits-only", (Exit(3, 8),), supervised=0.5, distilled=0.0)
    task = replace(PLAN.task, labelled=False)
    settled = normal_form(replace(PLAN, heads=heads, task=task)).heads
    assert (settled.supervised, settled.distilled, settled.pseudo) == (0.0, 0.5, 0.0)


def test_maps_are_mirrored_only_where_samples_may_be_and_exits_train_by_steps() -> None:
    heads = HeadsPlan("exits-only", (Exit(3, 8),), flips=True)
    for augment, expected in ((("flip", "crop"), True), (("crop",), False)):
        task = replace(PLAN.task, augment=augment)
        assert normal_form(replace(PLAN, heads=heads, task=task)).heads.flips is expected
        solved = replace(heads, exits=(Exit(3, 0),), ridge=1.0)
        assert not normal_form(replace(PLAN, heads=solved, task=task)).heads.flips


def test_exits_begin_with_global_data_where_there_is_any() -> None:
    solved = replace(PLAN, heads=HeadsPlan("exits-only", (Exit(3, 0),), ridge=1.0, global_weight=0.5))
    assert normal_form(solved).heads.global_weight == 0.5
    stepped = replace(PLAN, heads=HeadsPlan("exits-only", (Exit(3, 8),), global_weight=0.5))
    assert normal_form(stepped).heads.global_weight == 1.0  # weights have no weight
    assert normal_form(stepped).pool.alpha == 1.0
    without = replace(solved.task, global_per_class=())
    assert normal_form(replace(solved, task=without)).heads.global_weight == 0.0


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(freeze_bn=False))),
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(micro_batches=4))),
        (EXITS_ALONE, replace(EXITS_ALONE, shape=(TailEdit("dropout"),), split=3)),
        (replace(PLAN, heads=BY_LABELS), replace(PLAN, heads=replace(BY_LABELS, temperature=2.0))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=10))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=9))),
        (replace(PLAN, recipe=RecipePlan(micro_batches=16)), replace(PLAN, recipe=RecipePlan(micro_batches=20))),
        (PLAN, replace(PLAN, heads=HeadsPlan("with-tail", (), supervised=1.0))),
        (PLAN, replace(PLAN, runtime=RuntimePlan(memory_bytes=10**9))),
        (replace(PLAN, split=0), replace(PLAN, split=0, runtime=IN_INT8)),
        (EXITS_ALONE, replace(EXITS_ALONE, runtime=IN_INT8)),
    ],
)
def test_plans_that_differ_in_an_idle_setting_have_one_key(plan: TrialPlan, other: TrialPlan) -> None:
    assert plan != other
    assert normal_form(plan).key() == normal_form(other).key()


@pytest.mark.parametrize(
    ("plan", "other"),
    [
        (PLAN, replace(PLAN, recipe=RecipePlan(freeze_bn=False))),
        (PLAN, replace(PLAN, recipe=RecipePlan(patience=8))),
        (PLAN, replace(PLAN, recipe=RecipePlan(micro_batches=2))),
        (PLAN, replace(PLAN, recipe=RecipePlan(optimiser="adam"))),
        (PLAN, replace(PLAN, runtime=IN_INT8)),
        (EXITS_ALONE, replace(EXITS_ALONE, recipe=RecipePlan(patience=8))),
        (EXITS_ALONE, replace(EXITS_ALONE, heads=replace(EXITS_ALONE.heads, temperature=2.0))),
    ],
)
def test_settings_with_effect_keep_plans_apart(plan: TrialPlan, other: TrialPlan) -> None:
    assert normal_form(plan).key() != normal_form(other).key()


@pytest.mark.parametrize(
    "plan", [replace(PLAN, split=0, cache=CachePlan("cache", 4)), replace(PLAN, cache=CachePlan(bits=4))]
)
def test_a_cache_of_nothing_is_no_cache(plan: TrialPlan) -> None:
    assert normal_form(plan).cache == CachePlan()


def test_without_global_data_no_fraction_is_kept() -> None:
    assert normal_form(replace(mixed(0.1), task=replace(PLAN.task, global_per_class=()))).data == DataPlan()


def test_weight_and_balance_are_kept_where_they_have_an_effect() -> None:
    plan = replace(PLAN, data=DataPlan(0.1, weight=2.0, balance=True))
    assert normal_form(plan).data == plan.data
    assert (
        len(
            {
                replace(plan, data=replace(plan.data, **given)).key()
                for given in ({}, {"weight": 1.0}, {"balance": False})
            }
        )
        == 3
    )
    assert normal_form(replace(plan, data=replace(plan.data, alpha=0.0))).data == DataPlan(balance=True)
    assert normal_form(
        replace(plan, task=replace(plan.task, labelled=False), heads=EXITS_ALONE.heads)
    ).data == DataPlan(0.1, weight=2.0)


@given(legal_plans())
def test_a_normal_form_is_its_own(plan: TrialPlan) -> None:
    normal = normal_form(plan)
    assert normal_form(normal) == normal
