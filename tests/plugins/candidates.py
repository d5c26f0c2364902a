"""Made-up candidates for selectors."""

from collections.abc import Mapping

from tuner.arrays import Floats, Labels
from tuner.backends.selecting import Candidates


def candidates(features: Floats, labels: Labels, counts: Mapping[int, int]) -> Candidates:
    return Candidates(labels, counts, labels[:1], 0, features.copy, features[:1].copy)
