"""The worth of growing: reward, finite-horizon value, penalty, and the choice between layers.

Source: RIC-grow of MDLdroidLite and its journal version (factor e^d, dynamic penalty, equation 12).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tuner_growth.decay import Decay

DISCOUNT = 0.5
#: Probability that an action above 0 is tried; the others are dropped to save time.
KEPT = 0.5
#: Actions of a width o: ⌊0.6·o⌋ of them, including 0.
OPTIONS = 0.6
PENALTY_STEP = 0.05
#: Layers up to which every combination is tried; beyond, single flips from the better of all and each alone.
MOST_BRUTE = 12


@dataclass(frozen=True, slots=True)
class Best:
    """A layer's best action by itself.

    Attributes:
        action: Channels to add; 0 adds none.
        value: Value of the best action.
        stay: Value of adding none.
        values: Value of every action that was tried.
    """

    action: int
    value: float
    stay: float
    values: Mapping[int, float]


def reward(before: float, after: float, cost_ratio: float, penalty: float, added: int) -> float:
    """Return ``|G(s) − G(s')| / (1 + η·e^d·(C(s')/C(s) − 1))``, at least 0.

    Args:
        before: G(s).
        after: G(s').
        cost_ratio: C(s') / C(s).
        penalty: η.
        added: d, channels added since the root state.
    """
    return max(0.0, abs(before - after) / (1 + penalty * math.exp(min(added, 700)) * (cost_ratio - 1)))


def options(width: int, cap: int) -> range:
    """Return the actions of a layer: from 0, ⌊0.6·width⌋ of them, within the cap."""
    return range(max(1, min(math.floor(OPTIONS * width), cap - width + 1)))


def best(
    table: Sequence[Decay],
    width: int,
    cap: int,
    cost: Callable[[int], float],
    penalty: float,
    generator: np.random.Generator,
) -> Best:
    """Return the action of the highest finite-horizon value.

    ``V(s) = max_a Bern(p)·(R(s, a, s') + γ·V(s'))``; action 0 is never dropped, and the scan of actions ends at the
    first decrease.

    Args:
        table: G over width, for now and for each epoch ahead; its length less one is the horizon.
        width: Current width.
        cap: Widest allowed.
        cost: C(s) at a width of this layer, with all others unchanged.
        penalty: η.
        generator: Draws which actions are dropped.
    """
    root = width
    cached: dict[tuple[int, int], dict[int, float]] = {}

    def values(depth: int, width: int) -> dict[int, float]:
        if (depth, width) not in cached:
            by_action: dict[int, float] = {}
            cached[depth, width] = by_action
            last = -math.inf
            for action in options(width, cap):
                if action and generator.random() >= KEPT:
                    continue
                to = width + action
                ratio = cost(to) / cost(width)
                value = reward(table[depth].at(width), table[depth + 1].at(to), ratio, penalty, to - root)
                if depth + 2 < len(table):
                    value += DISCOUNT * max(values(depth + 1, to).values())
                by_action[action] = value
                if value < last:
                    break
                last = value
        return cached[depth, width]

    at_root = values(0, width)
    action = max(at_root, key=lambda candidate: (at_root[candidate], -candidate))  # of equal values, the smaller one
    return Best(action, at_root[action], at_root[0], at_root)


def raised_penalty(penalty: float, before: float | None, now: float) -> float:
    """Return ``min(1, η + ξ·ReLU(g(t−1) − g(t)))``: growth costs more once it pays less."""
    return min(1.0, penalty + PENALTY_STEP * max(0.0, (now if before is None else before) - now))


def combined_actions(
    layers: Sequence[Best], flops: Callable[[Sequence[int]], float], always: Sequence[bool] | None = None
) -> tuple[int, ...]:
    """Return one action a layer: each its own best or 0, so that ``Σ G_l / (FLOPs(new) / FLOPs(now))`` is highest.

    The sum is over all layers; those that ``always`` grow take their best. The combination in which none of the others
    grows is left out, so it is returned only where none wants to grow.

    Args:
        layers: The best action of each layer by itself.
        flops: FLOPs of the network after some actions, one a layer.
        always: Which layers take their action whatever the others do, as linear ones; by default none.
    """
    sure = {index for index, yes in enumerate(always or ()) if yes}
    wanting = [index for index, layer in enumerate(layers) if layer.action and index not in sure]
    now = flops((0,) * len(layers))

    def actions(grows: Sequence[bool]) -> tuple[int, ...]:
        growing = sure | {index for index, yes in zip(wanting, grows, strict=True) if yes}
        return tuple(layer.action if index in growing else 0 for index, layer in enumerate(layers))

    def worth(grows: Sequence[bool]) -> float:
        combination = actions(grows)
        value = sum(layer.value if action else layer.stay for layer, action in zip(layers, combination, strict=True))
        return value * now / flops(combination)

    if not wanting:
        return actions(())
    if len(wanting) <= MOST_BRUTE:
        return actions(max((grows for grows in product((True, False), repeat=len(wanting)) if any(grows)), key=worth))
    alone = [tuple(index == only for index in range(len(wanting))) for only in range(len(wanting))]
    grows = max([(True,) * len(wanting), *alone], key=worth)
    while True:
        flips = [tuple(yes != (index == flip) for index, yes in enumerate(grows)) for flip in range(len(wanting))]
        better = max((flipped for flipped in flips if any(flipped)), key=worth)
        if worth(better) <= worth(grows):
            return actions(grows)
        grows = better
