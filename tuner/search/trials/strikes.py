"""Errors of strategies, of what they made of a plan, and of optimisers: one that repeats them takes no further part."""

from collections import Counter
from collections.abc import Callable

from tuner.plugin.compose import Composed, StrategyError

#: A strategy that fails so often leaves the study.
MOST_FAILURES = 3


class Strikes:
    """Counts for one study; ``say`` is called with one line when a strategy or an optimiser takes no further part."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.barred: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._say = say

    def count_error(self, error: StrategyError, *, tried: bool) -> None:
        """Count an error in composing a plan: one that costs seconds anywhere, others if it was to be tried."""
        if error.ends is not tried:
            self.count(error.strategy, str(error))

    def count_fault(self, kind: str, reason: str, composed: Composed) -> None:
        """Count an error of what a plugin made of a plan: an edit or a loss term, by its kind, or an optimiser."""
        if kind in composed.editors:
            self.count(composed.editors[kind], reason)
        elif kind == composed.plan.recipe.optimiser:
            self.count(kind, reason, "optimiser")

    def count(self, name: str, reason: str, what: str = "strategy") -> None:
        """Count an error of a strategy, or of an optimiser that a plugin adds."""
        self._counts[name] += 1
        if self._counts[name] >= MOST_FAILURES and name not in self.barred:
            self.barred.add(name)
            self._say(f"{reason}; {what} {name!r} failed {MOST_FAILURES} times and takes no further part")
