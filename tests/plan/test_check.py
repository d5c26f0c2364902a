"""The rules that a plan must obey: a broken one is named with the value."""

from dataclasses import replace

import pytest

from tests.plan.plans import PLAN, mixed
from tuner.errors import PlanError
from tuner.plan.heads import Exit, HeadsPlan
from tuner.plan.parts import CachePlan, DataPlan, LossTerm, RecipePlan, RuntimePlan
from tuner.plan.trial import TrialPlan, check


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
