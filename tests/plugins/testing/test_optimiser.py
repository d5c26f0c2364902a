"""The contract of optimisers: a good one obeys it, and each of its checks fails for a bad one."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from tuner.plan.parts import RecipePlan
from tuner_testing import OptimiserContract

FAILS = pytest.fail.Exception


def momentum(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return torch.optim.SGD(parameters, lr=recipe.learning_rate, momentum=0.9)


class ByOwnRate(torch.optim.SGD):
    """It steps by the rate that it was made with."""

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given
        for group in self.param_groups:
            group["lr"] = 0.1
        super().step()


class Counting(torch.optim.SGD):
    """It keeps the number of its steps to itself."""

    steps = 0

    def step(self, _closure: Any = None) -> None:  # type: ignore[override]  # no closure is ever given
        self.steps += 1
        for group in self.param_groups:
            group["lr"] /= self.steps
        super().step()


def without_the_last(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return torch.optim.SGD(list(parameters)[:-1], lr=recipe.learning_rate)


def idle(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    first, *rest = parameters
    groups: list[dict[str, Any]] = [{"params": [first], "weight_decay": -2.0}, {"params": rest}]
    return torch.optim.SGD(groups, lr=recipe.learning_rate)


def exploding(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return torch.optim.SGD(parameters, lr=recipe.learning_rate, weight_decay=float("inf"))


def of_own_rate(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return ByOwnRate(parameters, lr=recipe.learning_rate)


def counting(parameters: Iterable[Any], recipe: RecipePlan) -> Optimizer:
    return Counting(parameters, lr=recipe.learning_rate)


def no_optimiser(parameters: Iterable[Any], recipe: RecipePlan) -> Any:
    return torch.optim.SGD


class TestMomentum(OptimiserContract):
    factory = momentum


@pytest.mark.parametrize(
    ("factory", "check", "message"),
    [
        (without_the_last, "it_takes_every_parameter_once", "each of 3 parameters once, but its groups have 2"),
        (
            no_optimiser,
            "it_takes_every_parameter_once",
            r"must return a torch\.optim\.Optimizer, but it returned <class",
        ),
        (idle, "a_step_changes_every_parameter_and_leaves_it_finite", "but one stays as it was"),
        (exploding, "a_step_changes_every_parameter_and_leaves_it_finite", "must leave weights finite"),
        (of_own_rate, "a_rate_of_zero_changes_nothing", "but at lr = 0 it changes weights"),
        (counting, "an_interrupted_training_continues_bit_for_bit", "must continue from its state_dict bit for bit"),
    ],
)
def test_a_bad_optimiser_fails_the_contract(factory: Callable[..., Any], check: str, message: str) -> None:
    contract = type("Contract", (OptimiserContract,), {"factory": staticmethod(factory)})()
    with pytest.raises(FAILS, match=message):
        getattr(contract, f"test_{check}")()


def test_every_check_of_the_optimiser_contract_has_been_seen_to_fail() -> None:
    assert len([name for name in vars(OptimiserContract) if name.startswith("test_")]) == 4
