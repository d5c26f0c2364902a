"""What training in two stages claims: by the unfavourable end of an interval."""

from collections.abc import Mapping

from benchmarks.papers.two_stage import BATCH, ratio_claim
from benchmarks.papers.two_stage_accuracy import (
    ARMS,
    FOUR,
    ONE,
    SHARED,
    SINGLE,
    STILL,
    WHOLE,
    Found,
    claims_of,
)

LESS = ((SINGLE, 0.7), (FOUR, 0.75), (WHOLE, 0.75), (WHOLE, 0.9), (STILL, 0.9), (ONE, 0.55))


def found(changes: Mapping[str, float] = {}, solved: float = 0.8) -> Found:
    """Return scores that meet every claim, but for the arms that are named."""
    means = {**dict.fromkeys(ARMS, 0.83), SHARED: 0.5, STILL: 0.8, **changes}
    return Found({name: [value - 0.001, value, value + 0.001] for name, value in means.items()}, solved, 1e-3)


def unmet(what: Found) -> list[str]:
    """Return the claims that do not hold."""
    return [claim.claim for claim in claims_of(what) if not claim.met]


def test_claims_hold_where_stored_features_cost_nothing() -> None:
    assert unmet(found()) == []


def test_a_mean_within_the_bound_is_not_enough() -> None:
    what = found()
    uneven = {**what.scores, FOUR: [0.81, 0.83, 0.86]}  # better than all others in the mean
    assert len(unmet(Found(uneven, what.solved, what.rate))) >= 2


def test_every_claim_can_fail() -> None:
    worse = (found({arm: accuracy}) for arm, accuracy in LESS)
    assert {claim for what in worse for claim in unmet(what)} == {claim.claim for claim in claims_of(found())}


def test_an_arm_without_all_seeds_is_compared_on_those_it_has() -> None:
    what = found()
    longer = {name: [*values, 0.1] if ARMS[name].main else values for name, values in what.scores.items()}
    claim = next(one for one in claims_of(Found(longer, what.solved, what.rate)) if "random changes" in one.claim)
    assert claim.met
    assert "3 pairs" in claim.measured


def test_one_slow_step_does_not_decide_a_ratio() -> None:
    steady = [3.0 * BATCH] * 12
    assert ratio_claim("", "", {"single": steady, "two": [float(BATCH)] * 12}, 2.9).met
    assert not ratio_claim("", "", {"single": [*steady[:-6], *[90.0] * 6], "two": [1.1 * BATCH] * 12}, 2.9).met
