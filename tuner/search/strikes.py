"""Errors of strategies, and of what they made of a plan: one that repeats them takes no further part."""

from collections import Counter
from collections.abc import Callable

#: A strategy that fails so often leaves the study.
MOST_FAILURES = 3


class Strikes:
    """Counts for one study.

    Args:
        say: Told in one line when a strategy leaves.

    Attributes:
        barred: Names of the strategies that take no further part.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.barred: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._say = say

    def count(self, name: str, reason: str) -> None:
        """Count an error of a strategy."""
        self._counts[name] += 1
        if self._counts[name] >= MOST_FAILURES and name not in self.barred:
            self.barred.add(name)
            self._say(f"{reason}; strategy {name!r} failed {MOST_FAILURES} times and takes no further part")
