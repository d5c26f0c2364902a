"""How many samples of each class a fraction of the global data takes."""

import pytest

from tuner.plan.info import per_class_counts


@pytest.mark.parametrize(
    ("alpha", "counts"), [(0.0, (0, 0, 0)), (1e-9, (1, 1, 0)), (0.05, (5, 1, 0)), (1.0, (100, 1, 0))]
)
def test_a_fraction_takes_at_least_one_sample_of_every_class_that_has_any(
    alpha: float, counts: tuple[int, ...]
) -> None:
    assert per_class_counts((100, 1, 0), alpha) == counts
