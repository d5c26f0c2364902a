"""How a model file trains: epochs, batch size, optimiser and the course of the learning rate, as a recipe."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tuner.errors import ModelError
from tuner.plan.parts import Course, RecipePlan
from tuner_nntrainer.file.ini import read_sections
from tuner_nntrainer.file.sections import Section, choice, number, positive, word
from tuner_nntrainer.network.layers import BatchNormalization
from tuner_nntrainer.network.network import OPTIMISERS, Network, OptimiserName

Number = TypeVar("Number", int, float)
#: NNTrainer's own learning rates (nntrainer/optimizers/adam.h, sgd.h) and settings of Adam.
_RATES: Mapping[OptimiserName, float] = {"adam": 1e-3, "sgd": 1e-4}
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-7
_COURSES: Mapping[str, Course] = {"constant": "constant", "exponential": "exponential", "step": "steps"}


def read_recipe(path: Path, network: Network) -> RecipePlan | None:
    """Return how a model file trains; None where it has no optimiser.

    Args:
        path: The file.
        network: What was read of it.

    Raises:
        ModelError: A value is none that can be used; the message has section, key, value and rule.
    """
    by_name = {section.name.lower(): section for section in read_sections(path)}
    model = by_name.get("model", Section("Model", path, {}))
    own = by_name.get("optimizer")
    scheduler = by_name.get("learningratescheduler")
    if own is None and "optimizer" not in model.keys:
        if scheduler is not None:
            raise ModelError(f"{scheduler.place}: a schedule needs an optimiser: add a section [Optimizer]")
        return None
    if own is not None and "optimizer" in model.keys:
        raise ModelError(f"{model.place}: optimizer is also given by [{own.name}]: keep one")
    section = own or model
    optimiser = choice(own, "type", OPTIMISERS, "adam") if own else choice(model, "optimizer", OPTIMISERS)
    kind = "exponential" if "decay_rate" in section.keys else "constant"
    if scheduler is not None:
        kind = choice(scheduler, "type", tuple(_COURSES))
    recipe = RecipePlan(
        epochs=positive(model, "epochs", 1),
        batch_size=network.batch_size,
        optimiser=optimiser,
        learning_rate=number(section, "learning_rate", _RATES[optimiser], above=0),
        schedule=_COURSES[kind],
        freeze_bn=not any(isinstance(node.operation, BatchNormalization) and node.trainable for node in network.nodes),
        momentum=0.0,
        beta1=number(section, "beta1", _BETA1, least=0, below=1),
        beta2=number(section, "beta2", _BETA2, least=0, below=1),
        epsilon=number(section, "epsilon", _EPSILON, above=0),
    )
    return _scheduled(recipe, scheduler or section, kind)


def _scheduled(recipe: RecipePlan, section: Section, kind: str) -> RecipePlan:
    """Return a recipe with the course of the learning rate that a section gives."""
    if kind == "step":
        rates = _listed(section, "learning_rate", float)
        steps = _listed(section, "iteration", int)
        if len(rates) != len(steps) + 1 or steps != sorted(set(steps)) or min(rates) <= 0:
            raise ModelError(
                f"{section.place}: learning_rate must have one value more than iteration, above 0, and iteration must "
                f"rise, got {section.keys['learning_rate']!r} and {section.keys['iteration']!r}"
            )
        later = zip((step + 1 for step in steps), rates[1:], strict=True)  # a rate holds up to its step
        return replace(recipe, learning_rate=rates[0], milestones=tuple(later))
    recipe = replace(recipe, learning_rate=number(section, "learning_rate", recipe.learning_rate, above=0))
    if kind == "constant":
        return recipe
    return replace(
        recipe, decay_rate=number(section, "decay_rate", above=0), decay_steps=positive(section, "decay_steps")
    )


def _listed(section: Section, key: str, kind: type[Number]) -> list[Number]:
    """Read numbers separated by commas."""
    text = word(section, key, "numbers separated by commas")
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        raise ModelError(f"{section.place}: {key} must be numbers separated by commas, got {text!r}")
    return values
