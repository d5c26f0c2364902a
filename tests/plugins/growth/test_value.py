"""The value of growing: rewards, options of a layer, and choices of several layers."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from tuner_growth.decay import Decay
from tuner_growth.value import Best, best, combined_actions, options, raised_penalty, reward

TABLE = tuple(Decay(60 * 0.9**ahead, 0.8, 1) for ahead in range(4))


def test_a_reward_is_the_fall_of_the_score_by_the_costs_that_channels_add() -> None:
    for added, penalty in ((2, 0.4), (4, 0.4), (1, 0.8)):
        expected = 6 / (1 + penalty * math.exp(added) * 0.5)
        assert reward(50, 44, 1.5, penalty, added) == pytest.approx(expected)
    assert reward(50, 44, 1.0, 0.4, 2) == pytest.approx(6)
    assert reward(50, 44, 0.1, 1.0, 9) == 0


@pytest.mark.parametrize(("width", "cap", "most"), [(2, 20, 0), (3, 20, 0), (4, 20, 1), (10, 20, 5), (18, 20, 2)])
def test_a_width_has_six_tenths_of_it_as_options_within_the_cap(width: int, cap: int, most: int) -> None:
    assert list(options(width, cap)) == list(range(most + 1))


def test_growth_wins_only_with_a_higher_value_than_staying() -> None:
    grew = 0
    for seed in range(40):
        for scale in (0.02, 0.3, 3.0):

            def cost(width: int, scale: float = scale) -> float:
                return 1 + scale * width

            found = best(TABLE, 10, 20, cost, 0.4, np.random.default_rng(seed))
            if found.action:
                assert found.value > found.stay
                grew += 1
            else:
                assert found.value == found.stay
    assert grew


def test_a_horizon_of_one_is_the_best_single_reward() -> None:
    class Keep(np.random.Generator):
        def random(self) -> float:  # type: ignore[override]  # only this form is called
            return 0.0

    def cost(width: int) -> float:
        return 1 + 0.001 * width

    found = best(TABLE[:2], 10, 20, cost, 0.1, Keep(np.random.PCG64(0)))
    tried = {a: reward(TABLE[0].at(10), TABLE[1].at(10 + a), cost(10 + a) / cost(10), 0.1, a) for a in range(6)}
    assert all(tried[action] == pytest.approx(value) for action, value in found.values.items())
    falls = next((a for a in range(1, 6) if tried[a] < tried[a - 1]), 5)
    assert found.action == max(range(falls + 1), key=lambda a: tried[a])


def test_the_penalty_never_falls_and_is_at_most_one() -> None:
    assert raised_penalty(0.4, None, 3) == 0.4
    assert raised_penalty(0.4, 5, 3) == pytest.approx(0.5)
    assert raised_penalty(0.4, 3, 5) == 0.4
    assert raised_penalty(0.9, 50, 0) == 1.0


@pytest.mark.parametrize("seed", range(10))
def test_layers_are_chosen_as_by_trying_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    layers = [
        Best(int(a), float(v), float(v) * float(generator.uniform(0.2, 1)), {})
        for a, v in zip(generator.integers(0, 4, 6), generator.uniform(1, 5, 6), strict=True)
    ]
    weights = generator.uniform(1, 20, 6)

    def flops(actions: Sequence[int]) -> float:
        return float(100 + weights @ np.asarray(actions))

    def worth(grows: Sequence[bool]) -> float:
        value = sum(one.value if yes else one.stay for one, yes in zip(layers, grows, strict=True))
        return value * flops([0] * 6) / flops([one.action * yes for one, yes in zip(layers, grows, strict=True)])

    wanting = [bool(one.action) for one in layers]
    all_of_them = [
        grows
        for grows in product((False, True), repeat=6)
        if any(grows) and not any(yes and not want for yes, want in zip(grows, wanting, strict=True))
    ]
    taken = combined_actions(layers, flops)
    assert worth([bool(action) for action in taken]) == pytest.approx(max(map(worth, all_of_them)))


def test_many_layers_are_chosen_without_trying_all_and_none_grows_where_staying_is_best() -> None:
    assert combined_actions([Best(0, 1, 1, {})] * 3, lambda _: 1.0) == (0, 0, 0)
    layers = [Best(1, 2.0, 1.0, {})] * 40
    assert sum(combined_actions(layers, lambda actions: 1000 + sum(actions))) == 40


def test_a_layer_that_always_grows_counts_in_the_sum_of_all() -> None:
    """Its value makes FLOPs weigh more: the convolution that would grow alone stays."""
    convolutions, linear = [Best(4, 5.0, 2.0, {}), Best(1, 1.0, 1.0, {})], Best(5, 40.0, 0.0, {})

    def flops(actions: Sequence[int]) -> float:
        return 100.0 + 10 * actions[0] + sum(actions[1:])

    assert combined_actions(convolutions, flops) == (4, 0)
    assert combined_actions([*convolutions, linear], flops, always=(False, False, True)) == (0, 1, 5)
