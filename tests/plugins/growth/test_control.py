"""The controllers of growth: when a width grows, by how much, and within which caps."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest

from tuner_growth.control import (
    ControllerState,
    Decision,
    GrowableNetwork,
    Rule,
    decide,
    initial_state,
    warm_up_steps,
)
from tuner_growth.cost import FIXED, LayerCost, NetworkCost

# LeNet-1D on sEMG: 8 channels of 100 samples, kernels of 14, flatten of 15 positions, 6 classes
LENET = NetworkCost(
    (
        LayerCost("conv1", 0, FIXED, 0, 8, 14, 87, per_output=1, linear=False),
        LayerCost("conv2", 1, 0, 0, 0, 14, 30, per_output=1, linear=False),
        LayerCost("fc1", 2, 1, 0, 0, 15, 1, per_output=1, linear=True),
        LayerCost("fc2", FIXED, 2, 6, 0, 1, 1, per_output=1, linear=True),
    )
)
CAPS = (20, 50, 500)


def test_a_cost_is_that_of_the_layer_and_its_successor() -> None:
    first = (2 * 8 * 14 - 1) * 87 * 2
    second = (2 * 2 * 14 - 1) * 30 * 5
    size = 2 * 8 * 14 + 5 * 2 * 14
    assert LENET.of_group(0, (2, 5, 10)) == pytest.approx(0.8 * (first + second) + 0.2 * size)
    linear = 2 * 10 * 75 + 2 * 6 * 10
    assert LENET.of_group(2, (2, 5, 10)) == pytest.approx(0.2 * linear + 0.8 * (750 + 60))


def everything_fits(widths: Sequence[int]) -> bool:
    return bool(widths)


def run(
    rule: Rule, periods: int, network: GrowableNetwork, start: tuple[int, ...] = (2, 5, 10)
) -> tuple[ControllerState, list[Decision]]:
    """Feed synthetic scores that decay with period and width."""
    state, decisions = initial_state(rule, start), []
    generator = np.random.default_rng(1)
    for period in range(1, periods + 1):
        losses = 2 * 0.97 ** np.arange(60) * 0.8**period + 0.1
        saliency = [
            losses * (1 - 0.9**period) + generator.uniform(0, 0.5, 60) * (period + width / 10) for width in state.widths
        ]
        state, decision = decide(rule, state, period, [list(one) for one in saliency], list(losses), network)
        decisions.append(decision)
    return state, decisions


@pytest.mark.parametrize(
    ("start", "widths"),
    [
        ((2, 5, 10), [(3, 7, 15), (5, 11, 25)]),
        ((3, 6, 12, 25), [(4, 8, 15, 29), (6, 12, 21, 37)]),
        ((6, 12, 25, 25, 50, 50, 50, 50), [(8, 16, 33, 33, 62, 62, 62, 62), (12, 24, 49, 49, 86, 86, 86, 86)]),
        ((4, 9, 30), [(5, 12, 40), (7, 18, 60)]),  # a third of the start, then twice that
    ],
)
def test_the_warm_up_is_the_authors(start: tuple[int, ...], widths: list[tuple[int, ...]]) -> None:
    found = np.cumsum([start, *warm_up_steps(start)], axis=0)[1:]
    assert [tuple(map(int, one)) for one in found] == widths


def test_the_warm_up_of_lenet_comes_in_the_second_and_third_period() -> None:
    _, decisions = run(Rule(), 3, GrowableNetwork(LENET, CAPS, everything_fits))
    assert [one.actions for one in decisions] == [(0, 0, 0), (1, 2, 5), (2, 4, 10)]
    assert [one.forced for one in decisions] == [False, True, True]


def test_the_controller_decides_from_the_fourth_period_on_and_obeys_the_caps() -> None:
    state, decisions = run(Rule(penalty=0.1), 16, GrowableNetwork(LENET, (6, 12, 27), everything_fits))
    assert any(sum(one.actions) for one in decisions[3:])
    assert all(width <= cap for width, cap in zip(state.widths, (6, 12, 27), strict=True))
    for before, after in pairwise(decisions):
        assert after.widths == tuple(w + a for w, a in zip(before.widths, after.actions, strict=True))
        assert all(0 < a <= b <= 1 for a, b in zip(before.penalties, after.penalties, strict=True))


def test_a_memory_limit_ends_growth_and_without_one_the_full_size_is_reached() -> None:
    def fits(widths: Sequence[int]) -> bool:
        return LENET.parameters(widths) <= 2500

    state, _ = run(Rule("exponential"), 30, GrowableNetwork(LENET, CAPS, fits))
    assert fits(state.widths)
    assert sum(state.widths) > 17
    state, _ = run(Rule("exponential"), 40, GrowableNetwork(LENET, CAPS, everything_fits))
    assert state.widths == CAPS


def test_decisions_are_replayed_from_a_stored_state() -> None:
    network = GrowableNetwork(LENET, CAPS, everything_fits)
    state, _ = run(Rule(), 6, network)
    back = ControllerState.from_dict(json.loads(json.dumps(asdict(state))))
    assert back == state
    losses = list(np.linspace(2, 1, 40))
    saliency = [list(np.linspace(1, width, 40)) for width in state.widths]
    assert decide(Rule(), back, 7, saliency, losses, network) == decide(Rule(), state, 7, saliency, losses, network)


@pytest.mark.parametrize(
    ("controller", "widths"),
    [("fixed", (2, 5, 10)), ("linear", (6, 15, 30)), ("exponential", (5, 13, 26))],
)
def test_step_rules_grow_every_third_period(controller: str, widths: tuple[int, ...]) -> None:
    state, decisions = run(Rule(controller), 6, GrowableNetwork(LENET, CAPS, everything_fits))
    assert state.widths == widths
    assert all(not any(decisions[index].actions) for index in (0, 1, 3, 4))
