"""A plan as one English line."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.plan import TailEdit, TrialPlan

#: What is said of who trains; nothing of the usual one.
BACKENDS = {"torch": "", "onnxruntime": " by ONNX Runtime"}
OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


def said(plan: "TrialPlan") -> str:
    """Return what a plan trains, on what, from where and how."""
    blocks = plan.model.num_blocks
    part = "the whole model" if plan.split == 0 else f"last {plan.trainable} of {blocks} blocks"
    if not plan.trainable:
        part = "side heads only"
    recipe = plan.recipe
    plural = "" if recipe.epochs == 1 else "s"
    how = f"{recipe.epochs} epoch{plural} {OPTIMISERS[recipe.optimiser]} {_rate(recipe.learning_rate)}"
    how += f" in {recipe.micro_batches} micro-batches" if recipe.micro_batches > 1 else ""
    edits = "".join(f", {edit.kind}{_settings(edit)}" for edit in plan.shape)
    by = BACKENDS.get(plan.runtime.backend, f" by {plan.runtime.backend}")
    return f"train {part} on {_data(plan)}{_source(plan)}, {how}{edits}{plan.heads.say()}{by}"


def _data(plan: "TrialPlan") -> str:
    local = f"{plan.task.local_train:,} local"
    if not plan.global_samples:
        return f"{local} {plan.task.noun}"
    realised = plan.global_samples / sum(plan.task.global_per_class)
    mixed = f"{plan.global_samples:,} global {plan.task.noun}"
    return f"{local} + {mixed} (α {_percent(plan.data.alpha)}, realised {_percent(realised)})"


def _source(plan: "TrialPlan") -> str:
    """Say where samples come from and whether they are changed; and where a task allows that, but they cannot be."""
    strength = plan.cache.augment
    if not plan.cached:
        return f", augmented by {strength:.2g}" if strength else ""
    article = "an" if plan.cache.bits == 8 else "a"  # noqa: PLR2004 - "an eight"
    source = f" from {article} {plan.cache.bits}-bit cache"
    if strength:
        return f"{source} augmented by {strength:.2g}"
    if plan.task.augment and not plan.can_augment:
        return f"{source} ({_unaugmented(plan.source_shape)}: not augmented)"
    return source


def _unaugmented(shape: tuple[int, ...]) -> str:
    """Say what it is in stored maps that no random change allowed by the task acts on."""
    if math.prod(shape[1:]) > 1:
        return "stored maps"
    return "vectors" if len(shape) == 1 else "1 × 1 maps"


def _settings(edit: "TailEdit") -> str:
    said = ", ".join(f"{name} {f'{value:.2g}' if isinstance(value, float) else value}" for name, value in edit.settings)
    return f" ({said})" if said else ""


def _rate(value: float) -> str:
    """Return a learning rate as the field writes it: ``"1e-3"``, ``"3.2e-4"``."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}" if int(exponent) < -1 else f"{value:.2g}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %"
