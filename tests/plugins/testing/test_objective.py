"""The contract of objectives: a good one obeys it, and each of its checks fails for a bad one."""

from typing import Any

import pytest

from tuner.results.scores.objectives import Objective
from tuner_testing import ObjectiveContract

FAILS = pytest.fail.Exception


class TestJoules(ObjectiveContract):
    objective = Objective("train_joules", "minimise", "J")


@pytest.mark.parametrize(
    ("name", "direction", "unit", "check", "message"),
    [
        ("train joules", "minimise", "J", "its_name_is_free", "must be an identifier, got 'train joules'"),
        ("train_seconds", "minimise", "s", "its_name_is_free", "objective 'train_seconds' .* a name that is taken"),
        ("joules", "minimize", "J", "its_direction_is_known", "must be 'maximise' or 'minimise', got 'minimize'"),
        ("joules", "minimise", "joules a day", "its_unit_is_a_base_unit", "a word of at most 8 letters, got 'joules a"),
        ("joules", "minimise", "kJ", "its_unit_is_a_base_unit", "in base units, got 'kJ': give them in 'J'"),
    ],
)
def test_a_bad_objective_fails_the_contract(name: str, direction: Any, unit: str, check: str, message: str) -> None:
    contract = type("Contract", (ObjectiveContract,), {"objective": Objective(name, direction, unit)})()
    with pytest.raises(FAILS, match=message):
        getattr(contract, f"test_{check}")()


def test_every_check_of_the_objective_contract_has_been_seen_to_fail() -> None:
    assert len([name for name in vars(ObjectiveContract) if name.startswith("test_")]) == 3
