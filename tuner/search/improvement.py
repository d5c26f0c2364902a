"""When the front of a study last became better."""

import math
import time
from collections.abc import Sequence

from tuner.results.pareto import area
from tuner.results.records import TrialRecord, comparable
from tuner.search.listener import Listener

#: A front whose area is larger by less is as good as before.
FLAT = 1e-3


class Improvement:
    """Watches the area of (local, global) accuracy under the front, and the rung that it is of.

    Args:
        listener: Receives a better front.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._rung, self._area, self._at = math.inf, 0.0, math.inf

    @property
    def flat_seconds(self) -> float:
        """Seconds since the front last became better; 0 where there is none yet."""
        return max(0.0, time.monotonic() - self._at)

    def note(self, records: Sequence[TrialRecord]) -> None:
        """Compare the front of some trials with the best so far: on a higher rung it is better in any case."""
        members = comparable(records)
        if not members:
            return
        rung = next(record.rung for record in records if record.trial in members)
        size = area(members.values())
        if rung < self._rung or (rung == self._rung and size > self._area * (1 + FLAT)):
            self._rung, self._area, self._at = rung, size, time.monotonic()
            self._listener.front(size, rung)
