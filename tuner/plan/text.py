"""A plan as one English line."""

import math
from typing import get_args

from tuner.plan.heads import HeadsPlan
from tuner.plan.info import MAP_DIMENSIONS, BlockInfo
from tuner.plan.parts import DataEdit, LossTerm, Scalar, Schedule, TailEdit
from tuner.plan.trial import TrialPlan

#: How a backend is mentioned; the default one is not.
BACKENDS = {"torch": "", "onnxruntime": " by ONNX Runtime"}
OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


#: What a plan is called whose last layer is solved for, on screens and in documents.
SOLVED = "the head in closed form"


def describe(plan: TrialPlan) -> str:
    """Return what a plan trains, on which samples, from which features, and how."""
    edits = "".join(f", {edit.kind}{_settings(edit)}" for edit in plan.shape if edit.settings or not plan.traits.solves)
    terms = "".join(f", + {term.weight:.2g} {term.kind}{_settings(term)}" for term in plan.loss)
    backend = BACKENDS.get(plan.runtime.backend, f" by {plan.runtime.backend}")
    backend += ", its frozen blocks in int8" if plan.runtime.precision == "int8" else ""
    changes = f"{edits}{_heads(plan.heads)}{terms}{backend}"
    samples = f"{_data(plan)}{f' at {plan.size} px' if plan.size else ''}"
    if plan.traits.solves:
        return f"solve {trained_part(plan)} for {samples}{_source(plan)}{changes}"
    return f"train {_part(plan)} on {samples}{_source(plan)}, {_recipe(plan)}{changes}"


def plain(plan: TrialPlan) -> str:
    """Return what a plan trains and on which samples, for somebody who knows no terms of the field.

    ``"trains the last 2 of 20 blocks on 1,192 of your photos and 400 known ones, in 4 epochs"``
    """
    noun, own = plan.task.noun, f"{plan.local_samples:,}"
    samples = f"{own} of your {noun}" if plan.data.share == 1 else f"{own} of your {plan.task.local_train:,} {noun}"
    if plan.global_samples:
        samples += f" and {plan.global_samples:,} known one{'' if plan.global_samples == 1 else 's'}"
    samples += f" at {plan.size} px" if plan.size else ""
    if plan.traits.solves:
        return f"computes {trained_part(plan)} from {samples}"
    by = "".join(f", by {edit.kind}" for edit in plan.shape)
    exits = f" and {_exits(plan)}" if plan.heads.exits and plan.trainable else ""
    epochs = f"in {plan.recipe.epochs} epoch{'' if plan.recipe.epochs == 1 else 's'}"
    return f"trains {trained_part(plan)}{exits} on {samples}, {epochs}{by}"


def _exits(plan: TrialPlan) -> str:
    return f"{len(plan.heads.exits)} early exit{'' if len(plan.heads.exits) == 1 else 's'}"


def trained_part(plan: TrialPlan) -> str:
    """Return what of the model a plan trains, for a sentence: ``"the last 3 of 20 blocks"``."""
    if not plan.trainable:
        return _exits(plan)
    if plan.traits.solves:
        left = "" if plan.trainable == 1 else f" after {plan.split} of {plan.model.num_blocks - 1} blocks"
        return f"{SOLVED}{left}"
    if plan.split == 0:
        return "the whole model"
    return "the last block" if plan.trainable == 1 else f"the last {plan.trainable} of {plan.model.num_blocks} blocks"


def _part(plan: TrialPlan) -> str:
    if not plan.trainable:
        return "side heads only"
    if plan.split == 0:
        return "the whole model"
    blocks = plan.model.num_blocks
    return f"last of {blocks} blocks" if plan.trainable == 1 else f"last {plan.trainable} of {blocks} blocks"


def _data(plan: TrialPlan) -> str:
    local = f"{'all ' if plan.data.refit else ''}{plan.local_samples:,} local"
    if plan.data.share < 1:
        local = f"{plan.local_samples:,} of {plan.task.local_train:,} local"
    balance = ", classes balanced" if plan.data.balance else ""
    balance += "".join(f", {change.kind}{_settings(change)}" for change in plan.data.batches)
    if not plan.global_samples:
        return f"{local} {plan.task.noun}{balance}"
    realised = plan.global_samples / plan.task.mixed_samples(1.0)
    mixed = f"{plan.global_samples:,} global {plan.task.noun}"
    edit = plan.data.edit
    by = f", by {edit.kind}{_settings(edit)} of {edit.candidates} each" if edit else ""
    weight = f", weight {plan.data.weight:.2g}" if plan.data.weight != 1 else ""
    return f"{local} + {mixed} (α {_percent(plan.data.alpha)}, realised {_percent(realised)}{by}{weight}){balance}"


def _source(plan: TrialPlan) -> str:
    """Return where samples come from and how they are changed; or why not, where the task allows changes."""
    strength = plan.cache.augment
    changes = f"augmented by {strength:.2g}"
    if plan.cache.left_out:
        changes = f"{changes} ({', '.join(sorted(plan.operations))})"
    if not plan.cached:
        return f", {changes}" if strength else ""
    article = "an" if plan.cache.bits == 8 else "a"  # noqa: PLR2004 - "an eight"
    source = f" from {article} {plan.cache.bits}-bit cache"
    if strength:
        return f"{source} {changes}"
    if plan.task.augment and not plan.can_augment:
        return f"{source} ({_unaugmented(plan.source)}: not augmented)"
    return source


def _unaugmented(source: BlockInfo) -> str:
    """Return the name of features of which the task allows no random change."""
    if math.prod(source.in_shape[1:]) > 1:
        return "tokens" if source.channels_last or len(source.in_shape) < MAP_DIMENSIONS else "stored maps"
    return "vectors" if len(source.in_shape) == 1 else "1 × 1 maps"


def _recipe(plan: TrialPlan) -> str:
    recipe = plan.recipe
    plural = "" if recipe.epochs == 1 else "s"
    optimiser = OPTIMISERS.get(recipe.optimiser, recipe.optimiser)
    parts = f" in {recipe.micro_batches} micro-batches" if recipe.micro_batches > 1 else ""
    told = {"milestones", "solve_again"}
    further = "".join(f", {name} {_value(value)}" for name, value in recipe.further.items() if name not in told)
    further += ", head solved again" if recipe.solve_again else ""
    course = "" if recipe.schedule in get_args(Schedule) else f", rate by {recipe.schedule}"
    return f"{recipe.epochs} epoch{plural} {optimiser} {_rate(recipe.learning_rate)}{parts}{course}{further}"


def _settings(part: TailEdit | LossTerm | DataEdit) -> str:
    listed = ", ".join(f"{name} {_value(value)}" for name, value in part.settings)
    return f" ({listed})" if listed else ""


def _value(value: Scalar) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _rate(value: float) -> str:
    """Return a learning rate in the usual notation: ``"1e-3"``, ``"3.2e-4"``."""
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}" if int(exponent) < -1 else f"{value:.2g}"


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    return f"{percent:.2g} %" if percent < 100 else f"{percent:.0f} %"  # noqa: PLR2004 - all of them


def _heads(heads: HeadsPlan) -> str:
    if not heads.exits:
        return ""
    weights = (("labels", heads.supervised), ("own answers", heads.pseudo), ("distillation", heads.distilled))
    teachers = " and ".join(name for name, weight in weights if weight)
    plural = "" if len(heads.exits) == 1 else "s"
    verb = "solved for" if heads.ridge else "taught"
    begun = ", begun on the global data" if heads.global_weight else ""
    begun += f", the first of {heads.small} px" if heads.small else ""
    begun += ", with gates" if heads.gated else ""
    begun += ", maps mirrored at random" if heads.flips else ""
    joint = f", jointly with weight {heads.joint:.2g}" if heads.joint else ""
    return f", {len(heads.exits)} exit{plural} ({heads.mode}{joint}; {verb} by {teachers}{begun})"
