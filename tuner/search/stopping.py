"""What ends a study: a limit, the space, or a front that stays as it is; and how much that may still grow."""

import math
from collections.abc import Sequence

from tuner.machine.awake import CLOCK
from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord, binding
from tuner.results.scores.pareto import area
from tuner.search.listener import Listener
from tuner.search.setting import CLOSING_SECONDS, Setting
from tuner.search.trials.queue import Queue
from tuner.units import format_seconds

REFUSALS_IN_A_ROW = 50
#: A front whose area is larger by less is as good as before.
FLAT = 1e-3
#: Twice the time adds so much of what the time before it, doubled, added.
NEXT_DOUBLING = 0.5


def reason_to_end(
    setting: Setting, queue: Queue, records: Sequence[TrialRecord], idle: int, flat_seconds: float
) -> str:
    """Return what ends a study now; empty where nothing does.

    ``idle`` is how many of the last trials were refused, failed or repeated, ``flat_seconds`` the time since the front
    last became better.
    """
    limits = setting.limits
    if limits.trials is not None and queue.done(records) >= limits.trials:
        return f"{limits.trials} trials are done"
    if setting.seconds_left <= CLOSING_SECONDS:
        return ": ".join(filter(None, ("the time is up", str(setting.reserve))))
    if limits.flat_seconds is not None and flat_seconds > limits.flat_seconds:
        return f"no better front for {format_seconds(limits.flat_seconds)}"
    if idle >= REFUSALS_IN_A_ROW:
        return f"{idle} plans in a row were {_obstacle(records[-idle:])}"
    return ""


def _obstacle(last: Sequence[TrialRecord]) -> str:
    """Say what kept the last plans from running."""
    broken = [name for record in last for name in record.constraint if record.state == "rejected"]
    repeats = sum(record.same_as is not None for record in last)
    if repeats > len(broken):
        return "tried before: the search space has nothing new"
    if not broken:
        return "failures"
    return f"refused, most of them for {binding(max(set(broken), key=broken.count))}"


class Improvement:
    """Watches the area of (local, global) accuracy under the front, and the rung that it is of."""

    def __init__(self, listener: Listener, setting: Setting) -> None:
        self._listener, self._setting = listener, setting
        self._began, self._at = CLOCK.now(), math.inf
        self._rung, self._sizes = math.inf, list[tuple[float, float]]()

    @property
    def flat_seconds(self) -> float:
        """Seconds since the front last became better; 0 where there is none yet."""
        return max(0.0, CLOCK.now() - self._at)

    def note(self, records: Sequence[TrialRecord], hope: float | None = None) -> None:
        """Compare the front of some trials with the best so far: on a higher rung it is better in any case.

        ``hope`` is by how much the area may grow at best, where the study knows; else it is read from how it grew.
        """
        now = CLOCK.now()
        members = comparable(records)
        if not members:
            return
        rung = next(record.rung for record in records if record.trial in members)
        size = area(members.values())
        if rung < self._rung:
            self._rung, self._sizes = rung, [(self._began, 0.0)]
        if size > self._sizes[-1][1] * (1 + FLAT):
            self._sizes.append((now, size))
            self._at = now
        gain = expected_growth(self._sizes, now, self._setting.seconds_left) if hope is None else hope
        self._listener.front(self._sizes[-1][1], rung, gain)


def expected_growth(sizes: Sequence[tuple[float, float]], now: float, left: float) -> float | None:
    """Return by how much a front's area is expected to grow; None where there is no end of the time, or no past yet.

    ``sizes`` has the clock and the area whenever it grew; the first is the begin of the search.
    """
    passed = now - sizes[0][0]
    if passed <= 0 or not math.isfinite(left):
        return None
    before = max((size for when, size in sizes if when <= sizes[0][0] + passed / 2), default=0.0)
    if before == 0.0:
        return None
    doublings = math.log2((passed + max(0.0, left)) / passed)
    gained: float = sizes[-1][1] - before
    return gained * NEXT_DOUBLING * (1 - math.pow(NEXT_DOUBLING, doublings)) / (1 - NEXT_DOUBLING)
