"""Placing tensors in a pool: no two live ones overlap, no pool exceeds the sum; several programs share what lasts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.planner.memory.placement import (
    PLANNERS,
    Placement,
    Tensor,
    basic,
    by_size,
    first_fit,
    largest_at,
    live_bytes,
    max_live,
    peak_step,
    smallest,
    v1,
)

SHARING = [v1, first_fit, by_size]
EVERY = list(PLANNERS.values())
Planner = Callable[[Sequence[Tensor]], Placement]


def tensor(number: int, nbytes: int, first: int, last: int) -> Tensor:
    return Tensor(f"t{number}", nbytes, first, last, "activation")


@st.composite
def steps(draw: st.DrawFn) -> list[Tensor]:
    """Up to 40 tensors of few sizes, so that slots of equal size are found, in up to 20 steps."""
    spans = st.tuples(st.sampled_from([1, 4, 16, 17, 100]), st.integers(0, 19), st.integers(0, 19))
    drawn = draw(st.lists(spans, max_size=40))
    return [tensor(number, size, min(a, b), max(a, b)) for number, (size, a, b) in enumerate(drawn)]


def overlaps(tensors: Sequence[Tensor], placement: Placement) -> list[tuple[str, str]]:
    """Pairs that are alive in the same step and share a byte, found step by step and byte range by byte range."""
    pairs = []
    for step in range(max((each.last for each in tensors), default=-1) + 1):
        alive = sorted((placement.offsets[each.name], each) for each in tensors if each.first <= step <= each.last)
        for (low, each), (high, other) in pairwise(alive):
            if low + each.nbytes > high:
                pairs.append((each.name, other.name))
    return pairs


@pytest.mark.parametrize("planner", EVERY)
@settings(max_examples=60)
@given(tensors=steps())
def test_no_two_live_tensors_overlap(planner: Planner, tensors: list[Tensor]) -> None:
    placement = planner(tensors)
    assert set(placement.offsets) == {each.name for each in tensors}
    assert overlaps(tensors, placement) == []
    ends = [placement.offsets[each.name] + each.nbytes for each in tensors]
    assert placement.pool_bytes == max(ends, default=0)
    assert all(offset >= 0 for offset in placement.offsets.values())
    assert max_live(tensors) <= placement.pool_bytes <= sum(each.nbytes for each in tensors)


@pytest.mark.parametrize("planner", EVERY)
@settings(max_examples=40)
@given(tensors=steps(), salt=st.integers(0, 10**9))
def test_names_do_not_matter(planner: Planner, tensors: list[Tensor], salt: int) -> None:
    names = {each.name: f"{hash((salt, each.name)):x}{each.name}" for each in tensors}
    renamed = planner([replace(each, name=names[each.name]) for each in tensors])
    plain = planner(tensors)
    assert renamed.offsets == {names[name]: offset for name, offset in plain.offsets.items()}
    assert renamed.pool_bytes == plain.pool_bytes


@pytest.mark.parametrize("planner", SHARING)
def test_tensors_that_never_meet_take_the_largest_ones_bytes(planner: Planner) -> None:
    tensors = [tensor(number, 10 * number + 1, 2 * number, 2 * number + 1) for number in range(5)]
    assert planner(tensors).pool_bytes == 41
    assert basic(tensors).pool_bytes == sum(each.nbytes for each in tensors)


def test_a_tensor_that_ends_where_another_begins_meets_it() -> None:
    tensors = [tensor(0, 8, 0, 1), tensor(1, 8, 1, 2), tensor(2, 8, 2, 3)]
    placement = by_size(tensors)
    assert placement.pool_bytes == 16
    assert placement.offsets["t0"] == placement.offsets["t2"] != placement.offsets["t1"]


def test_v1_takes_an_expired_slot_inside_the_stack_only_at_equal_size() -> None:
    below, above = tensor(0, 8, 0, 1), tensor(1, 4, 0, 9)
    top_first = [replace(below, last=1), replace(above, first=0)]
    same = v1([*top_first, tensor(2, 8, 2, 3)])
    smaller = v1([*top_first, tensor(2, 6, 2, 3)])
    # Of two that begin together the longer-lived is pushed first, so `below` lies on top and is popped when it expires.
    assert (same.offsets, same.pool_bytes) == ({"t1": 0, "t0": 4, "t2": 4}, 12)
    assert smaller.pool_bytes == 12
    held = [tensor(0, 8, 0, 2), tensor(1, 4, 1, 9)]
    assert v1([*held, tensor(2, 8, 3, 4)]).pool_bytes == 12
    assert v1([*held, tensor(2, 6, 3, 4)]).pool_bytes == 18
    assert first_fit([*held, tensor(2, 6, 3, 4)]).pool_bytes == 12


def test_live_bytes_are_those_of_every_step() -> None:
    tensors = [tensor(0, 8, 0, 1), tensor(1, 4, 1, 3), tensor(2, 9, 3, 3)]
    assert live_bytes(tensors) == [8, 12, 4, 13]
    assert (max_live(tensors), peak_step(tensors)) == (13, 3)
    assert [each.name for each in largest_at(tensors, 3)] == ["t2", "t1"]
    assert [each.name for each in largest_at(tensors, 3, count=1)] == ["t2"]


def test_no_tensors_take_no_bytes() -> None:
    assert [planner([]).pool_bytes for planner in EVERY] == [0, 0, 0, 0]
    assert (max_live([]), peak_step([]), largest_at([], 0)) == (0, 0, [])


@settings(max_examples=50)
@given(tensors=steps())
def test_the_smallest_pool_wins(tensors: list[Tensor]) -> None:
    name, placement = smallest(tensors)
    assert placement == PLANNERS[name](tensors)
    assert placement.pool_bytes == min(planner(tensors).pool_bytes for planner in EVERY)
