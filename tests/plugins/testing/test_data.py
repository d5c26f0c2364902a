"""The contract of selectors: a good one obeys it, and each of its checks fails for a bad one."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tuner.backends.selecting import Candidates, Selector
from tuner_testing import DataContract

FAILS = pytest.fail.Exception
CALLS = itertools.count()


def first(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:
    rows = {label: np.flatnonzero(candidates.labels == label) for label in candidates.counts}
    return [int(row) for label, count in candidates.counts.items() for row in rows[label][:count]]


def too_few(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:
    return first(candidates, settings)[1:]


def changing(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:
    rows = np.flatnonzero(candidates.labels == 0)
    return [*np.roll(rows, next(CALLS))[:10], *first(candidates, settings)[10:]]


def normalising_in_place(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:
    candidates.features[:] /= candidates.features.max()
    return first(candidates, settings)


def dividing_by_zero(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:
    np.divide(candidates.features, np.linalg.norm(candidates.features, axis=1, keepdims=True))
    return first(candidates, settings)


class TestFirst(DataContract):
    selector = first


def contract(choice: Selector) -> DataContract:
    return type("Contract", (DataContract,), {"selector": choice})()  # type: ignore[no-any-return]  # a class made by type


def test_a_wrong_number_is_found() -> None:
    with pytest.raises(FAILS, match=r"it must choose counts\[0\] = 10 of class 0, but it chose 9"):
        contract(too_few).test_it_chooses_as_many_of_each_class_as_asked_for(4)


def test_a_choice_that_changes_is_found() -> None:
    with pytest.raises(FAILS, match="draw at random by candidates"):
        contract(changing).test_the_same_candidates_give_the_same_choice()


def test_a_change_in_place_is_found() -> None:
    with pytest.raises(FAILS, match="change a copy"):
        contract(normalising_in_place).test_the_candidates_stay_as_they_are()


def test_a_division_by_zero_is_found() -> None:
    with pytest.raises(FAILS, match="invalid value"):
        contract(dividing_by_zero).test_samples_that_are_all_alike_are_chosen_once_each()
