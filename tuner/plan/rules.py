"""Rules of the parts of a plan that are rules of no other part."""

import math
from collections.abc import Iterator

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
    yield recipe.micro_batches >= 1, "recipe.micro_batches must be at least 1", recipe.micro_batches
    yield recipe.patience >= 0, "recipe.patience must be at least 0", recipe.patience
    most = max(recipe.epochs, recipe.batch_size, recipe.micro_batches, recipe.patience)
    yield most <= MOST, f"recipe: no number may be above {MOST}", most


def runtime_rules(runtime: RuntimePlan) -> Iterator[tuple[bool, str, object]]:
    """Yield whether each rule of what carries a plan out holds, the rule, and the value it is about."""
    yield runtime.memory_bytes >= 0, "runtime.memory_bytes must be at least 0", runtime.memory_bytes
    yield runtime.threads >= 1, "runtime.threads must be at least 1", runtime.threads
    yield runtime.threads <= MOST_THREADS, f"runtime.threads must be at most {MOST_THREADS}", runtime.threads
