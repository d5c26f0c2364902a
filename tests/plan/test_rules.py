"""The rules that a plan must obey, and its normal form: idle settings are left out, settings with effect stay."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.plan.plans import PLAN, legal_plans, mixed
from tuner.errors import PlanError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataEdit, DataPlan, EditTraits, LossTerm, RecipePlan, RuntimePlan, TailEdit
from tuner.plan.trial import TrialPlan, check, normal_form


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            replace(PLAN, model=replace(PLAN.model, blocks=()), split=0),
            "model.blocks must have at least one block, got 0",
        ),
        (replace(PLAN, split=21), r"split must be in \[0, 20\], got 21"),
        (replace(PLAN, split=-1), r"split must be in \[0, 20\], got -1"),
        (replace(PLAN, split=20), "a tail block or an exit must train, got neither"),
        (replace(PLAN, data=DataPlan(weight=0.0)), r"data.weight must be above 0, got 0.0"),
        (mixed(1.5), r"data.alpha must be in \[0, 1\], got 1.5"),
        (mixed(float("nan")), r"data.alpha must be in \[0, 1\], got nan"),
        (
            replace(mixed(0.05), data=DataPlan(0.05, edit=DataEdit("a", (), 0))),
            "data.edit.candidates must be at least 1",
        ),
        *(
            (replace(PLAN, data=data), rule)
            for data, rule in (
                (DataPlan(folds=1), "data.folds must be 0, or in"),
                (DataPlan(folds=10**6), "data.folds must be 0, or in"),
                (DataPlan(folds=3, share=0.5), "with data.share = 1, got 3"),
                (DataPlan(folds=3, fold=4), r"data.fold must be in \[0, 3\], got 4"),
                (DataPlan(fold=1), r"data.fold must be in \[0, 0\], got 1"),
            )
        ),
        (replace(PLAN, cache=CachePlan("cache", 3)), "cache.bits must be one of 32, 16, 8, 4, 2, 1, got 3"),
        (replace(PLAN, recipe=RecipePlan(epochs=0)), "recipe.epochs must be at least 1, got 0"),
        (replace(PLAN, recipe=RecipePlan(batch_size=0)), "recipe.batch_size must be at least 1"),
        (replace(PLAN, recipe=RecipePlan(learning_rate=0)), "recipe.learning_rate must be above 0"),
        (
            replace(PLAN, recipe=RecipePlan(learning_rate=float("inf"))),
            "recipe.learning_rate must be above 0, got inf",
        ),
        (replace(PLAN, recipe=RecipePlan(weight_decay=-1)), "recipe.weight_decay must be at least 0"),
        (replace(PLAN, recipe=RecipePlan(patience=-1)), "recipe.patience must be at least 0"),
        *(
            (replace(PLAN, loss=(LossTerm("a", weight),)), f"the weight of loss term 'a' must be above 0, got {weight}")
            for weight in (0.0, -1.0, float("inf"), float("nan"))
        ),
        (replace(PLAN, runtime=RuntimePlan(threads=0)), "runtime.threads must be at least 1"),
        (replace(PLAN, runtime=RuntimePlan(threads=2**31)), "runtime.threads must be at most 1024, got 2147483648"),
        *(
            (replace(PLAN, recipe=recipe), f"recipe: no number may be above 1000000, got {2**62}")
            for recipe in (
                *(RecipePlan(2**62), RecipePlan(1, 2**62)),
                *(RecipePlan(micro_batches=2**62), RecipePlan(patience=2**62)),
            )
        ),
        (
            replace(PLAN, heads=HeadsPlan("with-tail", (Exit(21, 8),))),
            r"heads.exits must be on blocks 0 to 19, got \[21\]",
        ),
        (replace(PLAN, heads=HeadsPlan(exits=(Exit(2, 0),))), "heads.exits must have at least one channel"),
        (
            replace(PLAN, heads=HeadsPlan(supervised=1.0, pseudo=0.5)),
            r"must not both be above 0, .* got \(1.0, 1.0, 0.5\)",
        ),
        (replace(PLAN, heads=HeadsPlan(distilled=0.0)), "heads.pseudo must be above 0, got"),
        (replace(PLAN, heads=HeadsPlan(temperature=0.0)), "heads.temperature must be above 0, got 0.0"),
        (replace(PLAN, heads=HeadsPlan(tolerance=2.0)), r"heads.tolerance must be in \[0, 1\], got 2.0"),
    ],
)
def test_a_broken_rule_is_named_with_the_value(plan: TrialPlan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_INT8 = RuntimePlan(precision="int8")
EXITS_ALONE = replace(PLAN, heads=HeadsPlan("exits-only", (Exit(3, 8),)))
BY_LABELS = HeadsPlan("with-tail", (Exit(3, 8),), supervised=1.0, distilled=0.0)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"recipe": RecipePlan(batch_size=2, micro_batches=8)}, 2),
        ({"recipe": RecipePlan(micro_batches=4, freeze_bn=False)}, 1),
        (
            {
                "recipe": RecipePlan(micro_batches=4),
                "shape": (TailEdit("width", traits=EditTraits(trains_norms=True)),),
            },
            1,
        ),
        ({"recipe": RecipePlan(micro_batches=4), "heads": HeadsPlan("exits-only", (Exit(3, 8),))}, 1),
    ],
)
def test_a_batch_is_cut_into_no_more_parts_than_it_has_samples_and_not_where_norms_train(
    changes: dict[str, Any], parts: int
) -> None:
    assert normal_form(replace(PLAN, **changes)).recipe.micro_batches == parts


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


def test_a_cache_of_nothing_is_no_cache() -> None:
    for plan in (replace(PLAN, split=0, cache=CachePlan("cache", 4)), replace(PLAN, cache=CachePlan(bits=4))):
        assert normal_form(plan).cache == CachePlan()


def test_weight_and_balance_are_kept_where_they_have_an_effect() -> None:
    plan = replace(PLAN, data=DataPlan(0.1, weight=2.0, balance=True))
    assert normal_form(plan).data == plan.data
    others = (DataPlan(0.1, balance=True), DataPlan(0.1, weight=2.0))
    assert len({plan.key(), *(replace(plan, data=other).key() for other in others)}) == 3
    assert normal_form(replace(plan, data=replace(plan.data, alpha=0.0))).data == DataPlan(balance=True)
    unlabelled = replace(plan, task=replace(plan.task, labelled=False), heads=EXITS_ALONE.heads)
    assert normal_form(unlabelled).data == DataPlan(0.1, weight=2.0)
    assert normal_form(replace(plan, task=replace(PLAN.task, global_per_class=()))).data == DataPlan(balance=True)


@given(legal_plans())
def test_a_normal_form_is_its_own(plan: TrialPlan) -> None:
    normal = normal_form(plan)
    assert normal_form(normal) == normal
