"""Herding: of each global class, the samples whose mean feature is nearest to that of all candidates.

A random fraction of a class may miss it by chance, the more so the smaller the fraction. Herding picks one sample after
the other so that the mean of those picked stays as close as possible to the class mean.

Source: Welling, "Herding dynamical weights to learn" (ICML 2009); Rebuffi et al., "iCaRL: Incremental classifier and
representation learning" (CVPR 2017), Algorithm 4: L2-normalised features, the greedy choice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tuner.plugin import (
    Candidates,
    DataEdit,
    Draw,
    ModelInfo,
    Scalar,
    Selector,
    Stage,
    Strategy,
    TrialPlan,
    hookimpl,
)

HERDING = "herding"
MOST_ALPHA = 0.1


@dataclass(frozen=True, slots=True)
class Knobs:
    """`alpha`: fraction of every global class that is mixed in; `candidates`: samples considered for each of them."""

    alpha: float
    candidates: int


class Coreset(Strategy[Knobs]):
    """Mix in the samples of every global class that stand best for their class."""

    name, stage = "coreset", Stage.DATA
    excludes = MappingProxyType({"gdm": "each decides which global samples are mixed in"})
    after = frozenset({"gdm"})

    def sample(self, draw: Draw, model: ModelInfo) -> Knobs:  # noqa: ARG002 - the same for every model
        """Draw α in [0, 0.1], and the number of candidates."""
        return Knobs(draw.number("alpha", 0.0, MOST_ALPHA, start=0.05), draw.choice("candidates", (2, 4)))

    def anchors(self, model: ModelInfo) -> Sequence[Mapping[str, Scalar]]:  # noqa: ARG002 - the same for every model
        """Return a head that is solved for over both domains: of all that may be mixed, it shows the choice soonest."""
        return ({"split.by": "closed_form", "closed_form.joint": True},)

    def apply(self, plan: TrialPlan, knobs: Knobs) -> TrialPlan:
        """Set the fraction, and how its samples are chosen."""
        edit = DataEdit(HERDING, candidates=knobs.candidates)
        return replace(plan, data=replace(plan.data, alpha=knobs.alpha, edit=edit))


def herding(candidates: Candidates, settings: Mapping[str, Any]) -> Sequence[int]:  # noqa: ARG001 - it has none
    """Choose greedily, class by class."""
    features = candidates.features.astype(np.float64)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    chosen: list[int] = []
    for label, count in candidates.counts.items():
        rows = np.flatnonzero(candidates.labels == label)
        own, mean, total = features[rows], features[rows].mean(axis=0), np.zeros(features.shape[1])
        free = np.ones(len(rows), bool)
        for number in range(1, count + 1):
            distances = np.linalg.norm(mean - (total + own) / number, axis=1)
            best = int(np.where(free, distances, np.inf).argmin())
            free[best] = False
            total += own[best]
            chosen.append(int(rows[best]))
    return chosen


@hookimpl
def tuner_strategies() -> Iterable[Strategy[Any]]:
    """Offer the strategy."""
    return [Coreset()]


@hookimpl
def tuner_selectors() -> Mapping[str, Selector]:
    """Offer the choice."""
    return {HERDING: herding}
