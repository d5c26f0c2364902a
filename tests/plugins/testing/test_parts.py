"""The contracts of a plugin's parts: a good part obeys its own, and each check fails for a bad one."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import LBFGS, SGD, Optimizer

from tuner.backends.batches import Batch
from tuner.backends.losses import LossInputs
from tuner.backends.measuring import MeasuredTrial
from tuner.backends.selecting import Candidates
from tuner.files import import_file
from tuner.plan.parts import LossTerm, RecipePlan
from tuner.results.scores.objectives import Objective
from tuner.targets import SINGLE_LABEL
from tuner_testing import (
    BatchContract,
    DataContract,
    LossContract,
    MeasureContract,
    ObjectiveContract,
    OptimiserContract,
)
from tuner_testing.rules import rules_of

CALLS = itertools.count()
#: A contract, a part that breaks it, the check that finds that, and what it says.
Bad = tuple[type, dict[str, Any], str, str]


def objective(name: str, direction: Any, unit: str, check: str, message: str) -> Bad:
    return ObjectiveContract, {"objective": Objective(name, direction, unit)}, check, message


OBJECTIVES = [
    objective("train joules", "minimise", "J", "its_name_is_free", "must be an identifier, got 'train joules'"),
    objective("train_seconds", "minimise", "s", "its_name_is_free", "'train_seconds' .* a name that is taken"),
    objective("joules", "minimize", "J", "its_direction_is_known", "'maximise' or 'minimise', got 'minimize'"),
    objective("joules", "minimise", "joules a day", "its_unit_is_a_base_unit", "a word of at most 8 letters, got 'jou"),
    objective("joules", "minimise", "kJ", "its_unit_is_a_base_unit", "in base units, got 'kJ': give them in 'J'"),
]


def first(candidates: Candidates) -> Sequence[int]:
    rows = {label: np.flatnonzero(candidates.labels == label) for label in candidates.counts}
    return [int(row) for label, count in candidates.counts.items() for row in rows[label][:count]]


def changing(candidates: Candidates) -> Sequence[int]:
    rows = np.flatnonzero(candidates.labels == 0)
    return [*np.roll(rows, next(CALLS))[:10], *first(candidates)[10:]]


def normalising_in_place(candidates: Candidates) -> Sequence[int]:
    candidates.features[:] /= candidates.features.max()
    return first(candidates)


def dividing_by_zero(candidates: Candidates) -> Sequence[int]:
    np.divide(candidates.features, np.linalg.norm(candidates.features, axis=1, keepdims=True))
    return first(candidates)


def selector(choose: Callable[[Candidates], Sequence[int]], check: str, message: str) -> Bad:
    return DataContract, {"selector": staticmethod(lambda candidates, _settings: choose(candidates))}, check, message


CHOOSES = "it_chooses_as_many_of_each_class_as_asked_for"
SELECTORS = [
    selector(
        lambda candidates: first(candidates)[1:], CHOOSES, r"must choose counts\[0\] = 10 of class 0, but .* chose 9"
    ),
    selector(changing, "the_same_candidates_give_the_same_choice", "draw at random by candidates"),
    selector(normalising_in_place, "the_candidates_stay_as_they_are", "change a copy"),
    (
        DataContract,
        {"selector": staticmethod(lambda candidates, _settings: first(candidates)), "settings": {"share": 0.5}},
        "every_setting_is_read",
        "a selector: every setting must be read, but 'share' is not",
    ),
    selector(dividing_by_zero, "samples_that_are_all_alike_are_chosen_once_each", "invalid value"),
]


def size(batch: LossInputs) -> torch.Tensor:
    losses: torch.Tensor = batch.logits.square().mean(1)
    return losses


def in_place(batch: LossInputs) -> torch.Tensor:
    batch.features.add_(1)
    return size(batch)


def valued(batch: LossInputs) -> torch.Tensor:
    return size(batch) * float(batch.features.mean())


def loss(function: Callable[[LossInputs], Any], check: str, message: str) -> Bad:
    losses = {"bad": lambda batch, _settings: function(batch)}
    return LossContract, {"term": LossTerm("bad", 1.0), "losses": losses}, check, message


LOSSES = [
    loss(lambda batch: size(batch).mean(), "every_sample_has_one_finite_loss", r"got \[\]: leave out .mean\(\)"),
    loss(lambda _batch: 1.0, "every_sample_has_one_finite_loss", "got float"),
    loss(lambda batch: batch.logits.exp().sum(1), "every_sample_has_one_finite_loss", "must return finite float32"),
    loss(lambda batch: size(batch).double(), "every_sample_has_one_finite_loss", "got torch.float64"),
    loss(
        lambda batch: batch.logits.gather(1, batch.labels[:, None])[:, 0],
        "every_sample_has_one_finite_loss",
        r"and several, but with torch\.float32 \[6, 5\] it raised RuntimeError.*test_parts\.py, line",
    ),
    loss(lambda batch: size(batch) * 0, "a_gradient_reaches_the_logits", "a gradient by the logits, but it is 0"),
    loss(lambda batch: (0 * size(batch)).sqrt(), "a_gradient_reaches_the_logits", "must have a finite gradient"),
    loss(lambda batch: size(batch) + torch.rand(len(batch.logits)), "it_is_pure", "draw no random numbers"),
    loss(in_place, "it_is_pure", "use no operator in place"),
    loss(
        lambda batch: size(batch) - size(batch).mean(),
        "a_samples_loss_depends_on_that_sample_alone",
        "must not depend on the other samples",
    ),
    loss(valued, "it_can_be_traced", "must be traceable"),
    (
        LossContract,
        {"term": LossTerm("bad", 1.0, (("power", 2.0),)), "losses": {"bad": lambda batch, _settings: size(batch)}},
        "every_setting_is_read",
        "loss term 'bad': every setting must be read, but 'power' is not",
    ),
]


class ByOwnRate(SGD):
    """It steps by the rate that it was made with."""

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given
        for group in self.param_groups:
            group["lr"] = 0.1
        super().step()


class Counting(SGD):
    """It keeps the number of its steps to itself."""

    steps = 0

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given
        self.steps += 1
        for group in self.param_groups:
            group["lr"] /= self.steps
        super().step()


def idle(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    first, *rest = parameters
    groups: list[dict[str, Any]] = [{"params": [first], "weight_decay": -2.0}, {"params": rest}]
    return SGD(groups, lr=recipe.learning_rate)


def optimiser(factory: Callable[[Iterable[Any], RecipePlan], Any], check: str, message: str) -> Bad:
    return OptimiserContract, {"factory": staticmethod(factory)}, check, message


TAKES, STEPS = "it_takes_every_parameter_once", "a_step_changes_every_parameter_and_leaves_it_finite"
OPTIMISERS = [
    optimiser(lambda all_, recipe: SGD(list(all_)[1:], lr=recipe.learning_rate), TAKES, "3 parameters once, .* have 2"),
    optimiser(lambda _all, _recipe: SGD, TAKES, r"must return a torch\.optim\.Optimizer, but it returned <class"),
    optimiser(idle, STEPS, "but one stays as it was"),
    optimiser(lambda all_, _: SGD(all_, lr=1.0, weight_decay=float("inf")), STEPS, "must leave weights finite"),
    optimiser(
        lambda all_, recipe: ByOwnRate(all_, lr=recipe.learning_rate),
        "a_rate_of_zero_changes_nothing",
        "but at lr = 0 it changes weights",
    ),
    optimiser(
        lambda all_, recipe: Counting(all_, lr=recipe.learning_rate),
        "an_interrupted_training_continues_bit_for_bit",
        "must continue from its state_dict bit for bit",
    ),
]


def only_once() -> Callable[[], Any]:
    """Return a measure that fails from the second time on."""
    is_open = iter([False])

    def begin() -> Callable[[MeasuredTrial], float]:
        if next(is_open, True):
            pytest.fail("the counter is open")
        return lambda _trial: 1.0

    return begin


def zeroing(trial: MeasuredTrial) -> float:
    for value in trial.tail.parameters():
        value.data.zero_()
    return 0.0


def measure(begin: Callable[[], Any], check: str, message: str) -> Bad:
    return MeasureContract, {"measure": staticmethod(begin)}, check, message


MEASURES = [
    measure(
        lambda: lambda _trial: None, "its_value_is_a_finite_number", "finite number, got None: offer it only where"
    ),
    measure(lambda: 1.0, "its_value_is_a_finite_number", r"return a function that ends it, but it returned 1\.0"),
    measure(lambda: zeroing, "it_leaves_the_trial_as_it_is", "must leave trial.tail as it is, but '.*weight' changed"),
    measure(only_once(), "it_can_be_taken_again", "the counter is open"),
]


def batch(function: Callable[[Batch, Any], Any], check: str, message: str) -> Bad:
    return BatchContract, {"function": staticmethod(function)}, check, message


CHANGES, DRAWS = "it_returns_finite_inputs_and_labels_of_the_same_shapes", "the_same_generator_gives_the_same_batch"
SUMS = "probabilities_still_add_up_to_one"
BATCHES = [
    batch(lambda own, _: (own.inputs * float("nan"), own.labels), CHANGES, "finite inputs and labels, but some"),
    batch(lambda own, _: (own.inputs, own.labels * 2), SUMS, "add up to 1, but some to 2"),
    batch(lambda own, _: (own.inputs[:1], own.labels[:1]), CHANGES, "of the shapes and types that it was given"),
    batch(lambda own, _: (own.inputs + float(np.random.default_rng().random()), own.labels), DRAWS, "generator alone"),
    batch(lambda own, _: (own.inputs.add_(1), own.labels), "the_given_batch_stays_as_it_is", "change a copy"),
]
BAD = [*BATCHES, *OBJECTIVES, *SELECTORS, *LOSSES, *OPTIMISERS, *MEASURES]


def momentum(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return SGD(parameters, lr=recipe.learning_rate, momentum=0.9)


class TestMomentum(OptimiserContract):
    factory = momentum


def lbfgs(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return LBFGS(parameters, recipe.learning_rate, max_iter=3)


class TestLBFGS(OptimiserContract):
    factory = lbfgs


def seconds() -> Callable[[MeasuredTrial], float]:
    begun = time.monotonic()
    return lambda _trial: time.monotonic() - begun


class TestSeconds(MeasureContract):
    measure = seconds


def worst_class() -> Callable[[MeasuredTrial], float]:
    """Read what a real trial has, of both domains."""
    domains = ("local", "global")
    return lambda trial: min(right / of for one in domains for _, right, of in trial.outcome.classes[one].rows)


class TestWorstClass(MeasureContract):
    measure = worst_class


def check_of(contract: type, part: Mapping[str, Any], check: str) -> Callable[..., None]:
    """Return a check of a contract, about a part."""
    found: Callable[..., None] = getattr(type("Contract", (contract,), dict(part))(), f"test_{check}")
    return found


@pytest.mark.parametrize(("contract", "part", "check", "message"), BAD)
def test_a_bad_part_fails_its_contract(contract: type, part: Mapping[str, Any], check: str, message: str) -> None:
    needed: Mapping[str, Sequence[Any]] = {CHOOSES: [4], CHANGES: [SINGLE_LABEL, (6,)], SUMS: [(6,)]}
    with pytest.raises(pytest.fail.Exception, match=message):
        check_of(contract, part, check)(*needed.get(check, ()))


def test_every_check_has_been_seen_to_fail() -> None:
    elsewhere = {"importing_the_plugin_loads_no_tensor_library"}  # a rule of the module that every part is in
    for contract in {contract for contract, *_ in BAD}:
        checks = {name.removeprefix("test_") for name in dir(contract) if name.startswith("test_")}
        assert checks - elsewhere == {check for of, _, check, _ in BAD if of is contract}


def test_a_kind_of_loss_that_the_hook_does_not_have_is_named_and_a_term_need_not_be_traceable() -> None:
    term = {"term": LossTerm("bad", 1.0)}
    with pytest.raises(pytest.fail.Exception, match="'bad' must be computed by tuner_losses, which has: another"):
        check_of(LossContract, {**term, "losses": {"another": size}}, "it_is_pure")()
    with pytest.raises(pytest.skip.Exception, match="eager loop only"):
        check_of(LossContract, {**term, "losses": {"bad": valued}, "traceable": False}, "it_can_be_traced")()


MEASURING = """
from tuner.plugin import Objective, hookimpl

def begin():
    return lambda _trial: 1.0

@hookimpl
def tuner_objectives():
    return [Objective("train_joules", "minimise", "J")]

@hookimpl
def tuner_measures(backend):
    return {"train_joules": begin}
"""


def test_a_plugin_that_measures_is_held_to_the_contract(tmp_path: Path) -> None:
    def broken(name: str, source: str) -> dict[str, str]:
        path = tmp_path / name
        path.write_text(source)
        rules = rules_of(import_file(path, "test"))
        of_measures = {rule.text for rule in rules if rule.subject.startswith("measure ")}
        assert of_measures == {
            "its value is a finite number",
            "it leaves the trial as it is",
            "it can be taken again",
        }
        return {rule.text: message for rule in rules if (message := rule.broken())}

    assert broken("tuner_one.py", MEASURING) == {}
    assert broken("tuner_two.py", MEASURING.replace('return {"train_joules"', 'return {"train_jouls"')) == {
        "its measures are of objectives": "measure 'train_jouls' must be of an objective (did you mean "
        "'train_joules'?): add it to tuner_objectives"
    }
