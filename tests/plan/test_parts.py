"""How many samples of each class a fraction of the global data takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.plan.info import per_class_counts


@pytest.mark.parametrize(
    ("alpha", "counts"), [(0.0, (0, 0, 0)), (1e-9, (1, 1, 0)), (0.05, (5, 1, 0)), (1.0, (100, 1, 0))]
)
def test_a_fraction_takes_at_least_one_sample_of_every_class_that_has_any(
    alpha: float, counts: tuple[int, ...]
) -> None:
    assert per_class_counts((100, 1, 0), alpha) == counts


@given(st.lists(st.integers(0, 500), max_size=5), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fraction_never_takes_less(available: list[int], one: float, other: float) -> None:
    low, high = (per_class_counts(tuple(available), alpha) for alpha in sorted((one, other)))
    assert all(a <= b <= most for a, b, most in zip(low, high, available, strict=True))
