"""Controllers: after every period of training, how many channels each growable width gains.

Source: RIC-grow of MDLdroidLite and the step rules it is compared with (NeST: linear; CGaP: exponential).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tuner_growth.compete import EpochScores, History, growth_scores, observed, tables
from tuner_growth.cost import NetworkCost
from tuner_growth.decay import Decay
from tuner_growth.value import Best, best, combined_actions, raised_penalty

#: Periods after which every width is forced to grow, so that three widths are known.
WARM_UP = (2, 3)
#: What the authors' code adds to each width then, by the widths of its networks at the start: LeNet, MobileNet, VGG-11.
#: (https://github.com/CPS-MDL/MDLdroidLite, `src/ri_control`; VGG's second growth is twice the first.)
WARM_UP_STEPS: Mapping[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {
    (2, 5, 10): ((1, 2, 5), (2, 4, 10)),
    (3, 6, 12, 25): ((1, 2, 3, 4), (2, 4, 6, 8)),
    (6, 12, 25, 25, 50, 50, 50, 50): ((2, 4, 8, 8, 12, 12, 12, 12), (4, 8, 16, 16, 24, 24, 24, 24)),
}
#: Share of its start that a width of any other network gains in the first of them; twice that in the second.
WARM_UP_SHARE = 1 / 3
#: Periods between two growths of the linear and the exponential rule, and the growth factor of the latter.
EVERY = 3
FACTOR = 1.6
#: Periods in a row without a better loss after which ``ric`` ends growth.
IDLE = 2


@dataclass(frozen=True, slots=True)
class Rule:
    """How widths grow.

    Attributes:
        controller: ``ric``, ``fixed``, ``linear`` or ``exponential``.
        horizon: Number of periods to look ahead.
        penalty: Initial η.
        seed: Seed of the draws that drop actions.
    """

    controller: str = "ric"
    horizon: int = 3
    penalty: float = 0.4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ControllerState:
    """A controller's memory; every tuple has one entry a width.

    A period is an epoch or several, as many as a decision needs batches; see `tuner_growth.periods`.

    Attributes:
        start: Widths at the beginning.
        widths: Current widths.
        histories: Growth scores.
        penalties: η.
        values: Values of the last actions; None before the first.
        loss: Best mean loss of a period; None before the first.
        idle: Number of periods in a row without a better loss.
        settled: Whether nothing will grow any more.
    """

    start: tuple[int, ...]
    widths: tuple[int, ...]
    histories: tuple[History, ...]
    penalties: tuple[float, ...]
    values: tuple[float | None, ...]
    loss: float | None = None
    idle: int = 0
    settled: bool = False

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "ControllerState":
        """Read a state back from what `dataclasses.asdict` or JSON made of it."""
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(content)


@dataclass(frozen=True, slots=True)
class GrowableNetwork:
    """The costs and bounds of a network's widths.

    Attributes:
        cost: FLOPs and parameters by width.
        caps: Largest size of every width.
        fits: Whether the network at some widths obeys its limits.
    """

    cost: NetworkCost
    caps: tuple[int, ...]
    fits: Callable[[Sequence[int]], bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision after a period; every tuple has one entry a width.

    Attributes:
        period: Number of the finished period, from 1.
        actions: Channels added.
        values: Values of the actions; 0 where the rule has none.
        widths: After the actions.
        penalties: η after the period.
        forced: Whether the growth belongs to the warm-up.
    """

    period: int
    actions: tuple[int, ...]
    values: tuple[float, ...]
    widths: tuple[int, ...]
    penalties: tuple[float, ...]
    forced: bool = False


def initial_state(rule: Rule, widths: Sequence[int]) -> ControllerState:
    """Return the state before the first period."""
    count = len(widths)
    empty: tuple[History, ...] = ((),) * count
    return ControllerState(tuple(widths), tuple(widths), empty, (rule.penalty,) * count, (None,) * count)


def decide(
    rule: Rule,
    state: ControllerState,
    period: int,
    saliency: Sequence[Sequence[float]],
    losses: Sequence[float],
    network: GrowableNetwork,
) -> tuple[ControllerState, Decision]:
    """Return the state and the decision after a period.

    Args:
        rule: How widths grow.
        state: State before the period.
        period: Number of the finished period, from 1.
        saliency: Σ|∂L/∂W ⊙ W| of every width in every recorded batch.
        losses: Loss of every recorded batch.
        network: Costs and bounds.
    """
    wanted, forced = _no_growth(state), False
    if rule.controller == "ric":
        seen = [EpochScores(period, growth_scores(batches, losses)) for batches in saliency]
        state = replace(state, histories=observed(state.histories, state.widths, seen, rule.horizon))
        forced = period in WARM_UP
        wanted = _warm_up(state, period) if forced else wanted
        wanted = _most_valuable(rule, state, period, network) if period > max(WARM_UP) else wanted
    elif period % EVERY == 0 and rule.controller in {"linear", "exponential"}:
        wanted = tuple(Best(_step(rule, state, index), 0.0, 0.0, {}) for index in range(len(state.widths)))
    actions = _bounded(wanted, state.widths, network)
    values = tuple(
        layer.values.get(action, 0.0) if layer.values else layer.value
        for layer, action in zip(wanted, actions, strict=True)
    )
    decided = rule.controller == "ric" and period > max(WARM_UP)
    penalties = state.penalties
    if decided:
        penalties = tuple(map(raised_penalty, state.penalties, state.values, values))
    widths = tuple(width + action for width, action in zip(state.widths, actions, strict=True))
    after = replace(state, widths=widths, penalties=penalties, values=values if decided else state.values)
    after = _settled(after, float(np.mean(losses)), network, counts=decided)
    return after, Decision(period, actions, values, widths, penalties, forced)


def warm_up_steps(start: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the two forced growths of a network's widths: the authors' of their networks, else a third of the start.

    Three widths are all that the controller needs to know; what is forced beyond that uses up the limits.
    """
    first = tuple(max(1, round(width * WARM_UP_SHARE)) for width in start)
    return WARM_UP_STEPS.get(tuple(start), (first, tuple(2 * step for step in first)))


def _settled(state: ControllerState, loss: float, network: GrowableNetwork, *, counts: bool) -> ControllerState:
    """Return the state after a period, with whether growth ends there.

    The paper's early stop, on accuracy and on resources: growth ends where the loss has not fallen for `IDLE` periods,
    and where no width can take one more channel.
    """
    better = state.loss is None or loss < state.loss
    idle = state.idle + 1 if counts and not better else 0
    one_more = (
        [*state.widths[:index], width + 1, *state.widths[index + 1 :]]
        for index, (width, cap) in enumerate(zip(state.widths, network.caps, strict=True))
        if width < cap
    )
    settled = idle >= IDLE or not any(map(network.fits, one_more))
    return replace(state, loss=loss if better else state.loss, idle=idle, settled=settled)


def _no_growth(state: ControllerState) -> tuple[Best, ...]:
    return (Best(0, 0.0, 0.0, {}),) * len(state.widths)


def _warm_up(state: ControllerState, period: int) -> tuple[Best, ...]:
    return tuple(Best(step, 0.0, 0.0, {}) for step in warm_up_steps(state.start)[WARM_UP.index(period)])


def _step(rule: Rule, state: ControllerState, index: int) -> int:
    if rule.controller == "linear":
        return state.start[index]
    return max(1, round(state.widths[index] * (FACTOR - 1)))


def _most_valuable(rule: Rule, state: ControllerState, period: int, network: GrowableNetwork) -> tuple[Best, ...]:
    """Return every width's own best action, or none for a convolution that does better so (equation 12)."""
    generator = np.random.default_rng((rule.seed, period))
    decays = tables(state.histories, period, rule.horizon)
    alone = [_best(state, index, table, network, generator) for index, table in enumerate(decays)]

    def flops(actions: Sequence[int]) -> float:
        return network.cost.flops([width + action for width, action in zip(state.widths, actions, strict=True)])

    together = combined_actions(alone, flops, always=[network.cost.is_linear(index) for index in range(len(alone))])
    return tuple(
        layer if action else replace(layer, action=0, value=layer.stay)
        for layer, action in zip(alone, together, strict=True)
    )


def _best(
    state: ControllerState, index: int, table: Sequence[Decay], network: GrowableNetwork, generator: np.random.Generator
) -> Best:
    width, cap = state.widths[index], network.caps[index]
    if not table or width >= cap:
        return Best(0, 0.0, 0.0, {0: 0.0})

    @cache
    def cost(at: int) -> float:
        return network.cost.of_group(index, (*state.widths[:index], at, *state.widths[index + 1 :]))

    return best(table, width, cap, cost, state.penalties[index], generator)


def _bounded(wanted: Sequence[Best], widths: Sequence[int], network: GrowableNetwork) -> tuple[int, ...]:
    """Return the actions clipped to the caps, the least valuable ones made smaller until the network fits."""
    actions = [min(layer.action, cap - width) for layer, cap, width in zip(wanted, network.caps, widths, strict=True)]
    order = sorted(range(len(actions)), key=lambda index: wanted[index].value - wanted[index].stay)
    for index in order:
        while actions[index] and not network.fits(
            [width + action for width, action in zip(widths, actions, strict=True)]
        ):
            actions[index] -= 1
    return tuple(actions)
