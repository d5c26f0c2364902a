"""What MoIL's chain claims: by the unfavourable end of an interval, from accuracies and seconds that this run has."""

import numpy as np
import numpy.typing as npt

from benchmarks.papers.moil_chain import (
    ALPHAS,
    ARMS,
    BALANCED,
    CACHED,
    FULL,
    LAST,
    MIXED,
    SIX,
    THREE,
    WEIGHED,
    quality,
    ratios,
)

GIVEN = 0.5


def scores(**changed: tuple[float, float]) -> dict[str, npt.NDArray[np.float64]]:
    """Return scores of three seeds that meet every claim, but for the arms that are named: local and global loss."""
    lost = {FULL: (0.0, 0.4), MIXED: (0.0, 0.1), THREE: (0.0, 0.05), **dict.fromkeys(ALPHAS, (0.0, 0.02))}
    lost |= {SIX: (0.01, 0.05), WEIGHED: (0.0, 0.0), BALANCED: (0.1, 0.0)}  # one that balances suffices
    lost |= {LAST: (0.0, 0.03), CACHED: (0.0, 0.03), **{globals()[name]: value for name, value in changed.items()}}
    return {name: np.array([[0.8 - lost[name][0], GIVEN - lost[name][1]]] * 3) for name in ARMS}


def unmet(found: dict[str, npt.NDArray[np.float64]]) -> list[str]:
    """Return the claims that do not hold."""
    return [claim.claim for claim in quality(found, GIVEN) if not claim.met]


def test_claims_hold_where_the_arms_are_as_in_the_thesis() -> None:
    assert unmet(scores()) == []


def test_a_mean_within_the_bound_is_not_enough() -> None:
    found = scores()
    found[MIXED][:, 0] += np.array([-0.03, 0.0, 0.03])  # in the mean, as good as before
    assert len([claim for claim in unmet(found) if "local accuracy" in claim and "0.9 points" in claim]) == 1
    assert len([claim for claim in unmet(found) if "at most 2 points" in claim]) == 1


def test_every_claim_can_fail() -> None:
    worse = (
        scores(FULL=(0.0, 0.1)),
        scores(MIXED=(0.1, 0.3)),
        scores(LAST=(0.3, 0.2), CACHED=(0.2, 0.2)),
        scores(THREE=(0.0, 0.02)),
        scores(THREE=(0.0, 0.2)),
        scores() | {"LF(1), GDM(100 %)": np.array([[0.2, 0.2]] * 3)},
        scores(WEIGHED=(0.1, 0.0)),
    )
    failed = {claim for found in worse for claim in unmet(found)}
    assert failed == {claim.claim for claim in quality(scores(), GIVEN)}


def test_one_slow_round_does_not_decide_a_ratio() -> None:
    steady = {MIXED: [0.9] * 5, LAST: [0.3] * 5, CACHED: [0.01] * 5}
    assert [claim.met for claim in ratios(steady)] == [True, True]
    uneven = steady | {MIXED: [0.3, 0.3, 0.3, 0.3, 90.0]}
    assert [claim.met for claim in ratios(uneven)] == [False, True]
