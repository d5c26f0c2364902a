"""Rules of the parts of a plan that are rules of no other part."""

import math
from collections.abc import Iterator
from dataclasses import replace

from tuner.plan.parts import RecipePlan, RuntimePlan

#: Of epochs, samples of a batch, parts of it, and epochs of patience.
MOST = 1_000_000
MOST_THREADS = 1024


def recipe_rules(recipe: RecipePlan) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule of a recipe holds, the rule, and the value it is about."""
    yield recipe.epochs >= 1, "recipe.epochs must be at least 1", recipe.epochs
    yield recipe.batch_size >= 1, "recipe.batch_size must be at least 1", recipe.batch_size
    yield 0 < recipe.learning_rate < math.inf, "recipe.learning_rate must be above 0", recipe.learning_rate
    yield 0 <= recipe.weight_decay < math.inf, "recipe.weight_decay must be at least 0", recipe.weight_decay
    for name in ("momentum", "beta1", "beta2"):
        yield 0 <= getattr(recipe, name) < 1, f"recipe.{name} must be at least 0 and below 1", getattr(recipe, name)
    for name in ("epsilon", "decay_rate"):
        yield 0 < getattr(recipe, name) < math.inf, f"recipe.{name} must be above 0", getattr(recipe, name)
    smoothing = recipe.label_smoothing
    yield 0 <= smoothing < 1, "recipe.label_smoothing must be at least 0 and below 1", smoothing
    yield recipe.decay_steps >= 1, "recipe.decay_steps must be at least 1", recipe.decay_steps
    steps = [step for step, _ in recipe.milestones]
    rising = steps == sorted(set(steps)) and all(0 < rate < math.inf for _, rate in recipe.milestones)
    yield rising, "recipe.milestones must have rising steps and rates above 0", recipe.milestones
    yield recipe.micro_batches >= 1, "recipe.micro_batches must be at least 1", recipe.micro_batches
    yield recipe.patience >= 0, "recipe.patience must be at least 0", recipe.patience
    most = max(recipe.epochs, recipe.batch_size, recipe.micro_batches, recipe.patience)
    yield most <= MOST, f"recipe: no number may be above {MOST}", most


def runtime_rules(runtime: RuntimePlan) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule of what carries a plan out holds, the rule, and the value it is about."""
    yield runtime.memory_bytes >= 0, "runtime.memory_bytes must be at least 0", runtime.memory_bytes
    yield 0 <= runtime.int8_loss <= 1, "runtime.int8_loss must be in [0, 1]", runtime.int8_loss
    yield runtime.threads >= 1, "runtime.threads must be at least 1", runtime.threads
    yield runtime.threads <= MOST_THREADS, f"runtime.threads must be at most {MOST_THREADS}", runtime.threads


def effective_runtime(runtime: RuntimePlan, *, before_tail: bool) -> RuntimePlan:
    """Return what carries a plan out, with idle settings at their defaults.

    Args:
        runtime: As a strategy wrote it.
        before_tail: Whether frozen blocks are before a tail: only these compute in int8.
    """
    precision = runtime.precision if before_tail else RuntimePlan().precision
    loss = RuntimePlan().int8_loss if precision == RuntimePlan().precision else runtime.int8_loss
    return replace(runtime, precision=precision, int8_loss=loss)


def effective_recipe(recipe: RecipePlan, *, exits_alone: bool, trains_norms: bool) -> RecipePlan:
    """Return a recipe with idle settings at their defaults.

    Args:
        recipe: Recipe as a strategy wrote it.
        exits_alone: Whether nothing but exits trains.
        trains_norms: Whether an edit of the tail, or exits in it, train norms whatever the recipe says.
    """
    if exits_alone:  # an exit's norms have no statistics worth freezing: they train whatever the recipe says
        recipe = replace(recipe, freeze_bn=RecipePlan().freeze_bn)
    if trains_norms or exits_alone or not recipe.freeze_bn:  # batch norms that train see whole batches
        recipe = replace(recipe, micro_batches=1)
    # Parts of equal size are what counts: 20 of a batch of 32 are 16 parts of two samples.
    recipe = replace(recipe, micro_batches=math.ceil(recipe.batch_size / recipe.part_size))
    recipe = replace(recipe, **{name: getattr(RecipePlan(), name) for name in _idle(recipe)})
    if recipe.patience >= recipe.epochs - 1:  # between the first epoch and the last there are fewer than that
        recipe = replace(recipe, patience=0)
    return recipe


def _idle(recipe: RecipePlan) -> Iterator[str]:
    """Yield the further settings that the optimiser and the schedule do not read; a plugin's optimiser may read all."""
    if recipe.optimiser in {"adam", "adamw"}:
        yield "momentum"
    if recipe.optimiser == "sgd":
        yield from ("beta1", "beta2", "epsilon")
    if recipe.schedule != "exponential":
        yield from ("decay_rate", "decay_steps")
    if recipe.schedule != "steps":
        yield "milestones"
