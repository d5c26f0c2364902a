"""McNemar's exact test against SciPy's binomial test."""

import pytest
from scipy.stats import binomtest

from tuner.runtime.service.mcnemar import difference, harm

COUNTS = [(lost, won) for lost in range(14) for won in range(14)] + [(700, 650), (3000, 2950), (0, 5000)]


@pytest.mark.slow
@pytest.mark.parametrize("sides", ["one", "two"])
def test_p_values_are_scipys(sides: str) -> None:
    for lost, won in COUNTS:
        if lost + won == 0:
            continue
        if sides == "one":
            expected = binomtest(lost, lost + won, 0.5, alternative="greater").pvalue
            assert harm(lost, won) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        else:
            expected = binomtest(lost, lost + won, 0.5).pvalue
            assert difference(lost, won) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_models_that_never_disagree_do_not_differ() -> None:
    assert harm(0, 0) == 1
    assert difference(0, 0) == 1


def test_counts_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        harm(-1, 3)
