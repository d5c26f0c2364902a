"""What training in two stages claims: by the unfavourable end of an interval; and the single stage's random pixels."""

from collections.abc import Mapping

import numpy as np
import torch

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
    changed,
    claims_of,
)

LESS = ((SINGLE, 0.7), (FOUR, 0.75), (WHOLE, 0.75), (WHOLE, 0.9), (STILL, 0.9), (ONE, 0.55))
MEAN = torch.tensor([0.5, 0.4, 0.3])[:, None, None]


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


def test_pixels_without_changes_stay_as_they_are() -> None:
    pixels = torch.randint(0, 256, (8, 3, 20, 20), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    kept = changed(pixels, np.random.default_rng(0), 0.0, MEAN)
    assert all(torch.equal(one, old) or torch.equal(one, old.flip(2)) for one, old in zip(kept, pixels, strict=True))


def test_random_pixels_are_crops_flips_and_shifts_of_the_photo() -> None:
    ramp = torch.arange(40, dtype=torch.uint8).repeat_interleave(2).expand(64, 3, 80, 80)
    pixels = ramp.contiguous(memory_format=torch.channels_last)
    made = changed(pixels, np.random.default_rng(1), 1.0, torch.full((3, 1, 1), 1.0))
    rows = made[:, 0, 40].int()
    inside = [row[row < 255] for row in rows]
    assert any(len(row) < 80 for row in inside)  # shifted: white moved in
    assert all(int(row.min()) >= 0 and int(row.max()) <= 39 for row in inside)
    rising = [bool((row.diff() >= 0).all()) for row in inside]
    assert 16 < sum(rising) < 48  # about every other one is flipped
    assert all(bool((row.diff() <= 0).all()) for row, up in zip(inside, rising, strict=True) if not up)
    assert any(int(row.max()) - int(row.min()) < 35 for row in inside)  # cropped, and resized to the whole
