"""What a selector receives and returns. This module loads no tensor library: features are NumPy's."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tuner.arrays import Floats, Labels, RowNumbers
from tuner.errors import ExtensionError, call_extension


class SelectorError(ExtensionError):
    """A plugin's selector failed, or broke a rule of selectors."""

    what, noun = "data edit", "selector"


@dataclass(frozen=True, eq=False)
class Candidates:
    """The global samples that a selector chooses from, in a fixed order.

    Features are the means over all positions of what the frozen blocks give, of stored records where there are any.
    They are read when they are first asked for, so that a choice by labels costs nothing.

    Attributes:
        labels: Class of each candidate, int64 [n]; with several labels the first, or their number where it has none.
        counts: Number of samples to choose, by class.
        local_labels: Classes of the local training samples, int64 [m].
        seed: Seed of what is drawn at random.
        read: Returns the candidates' features.
        read_local: Returns the local training samples' features.
    """

    labels: Labels
    counts: Mapping[int, int]
    local_labels: Labels
    seed: int
    read: Callable[[], Floats]
    read_local: Callable[[], Floats]

    @cached_property
    def features(self) -> Floats:
        """Features of the candidates, float32 [n, channels]."""
        return self.read()

    @cached_property
    def local_features(self) -> Floats:
        """Features of the local training samples, float32 [m, channels]."""
        return self.read_local()


#: Chooses samples: takes the candidates and the edit's settings, and returns row numbers of candidates.
Selector = Callable[[Candidates, Mapping[str, Any]], Sequence[int]]


def choose(kind: str, selector: Selector, candidates: Candidates, settings: Mapping[str, Any]) -> RowNumbers:
    """Return the rows that a plugin's selector chooses, sorted.

    Raises:
        SelectorError: The selector raised, or chose other than what was asked for.
    """
    answer: object = call_extension(SelectorError, kind, selector, candidates, settings)
    try:
        rows = np.asarray(answer)
    except (ValueError, TypeError):
        rows = np.array(None)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        rule = "it must return row numbers of candidates, but it returned"
        raise SelectorError(kind, f"{rule} {reprlib.repr(answer)}")
    rows, labels = rows.astype(np.int64), candidates.labels
    strange = rows[(rows < 0) | (rows >= len(labels))]
    if len(strange):
        raise SelectorError(kind, f"row numbers must be in [0, {len(labels) - 1}], but one is {strange[0]}")
    unique, times = np.unique(rows, return_counts=True)
    if len(unique) < len(rows):
        raise SelectorError(kind, f"a candidate may be chosen once, but row {unique[times > 1][0]} is there twice")
    for label, count in candidates.counts.items():
        chosen = int((labels[unique] == label).sum())
        if chosen != count:
            raise SelectorError(
                kind, f"it must choose counts[{label}] = {count} of class {label}, but it chose {chosen}"
            )
    return unique
