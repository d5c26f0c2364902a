"""Time on a device that may do other work: what a call takes, and whether there is time for another."""

import time
from collections.abc import Callable, Sequence

REPEATS = 3
#: Calls that are timed in turns, and before them those that are not.
TIMED_RUNS, UNTIMED_RUNS = 30, 3


class Clock:
    """Says whether there is time for more within some seconds from now, for a model that runs on some threads."""

    def __init__(self, within: float, threads: int) -> None:
        self._started, self._busy, self._within, self.threads = *_now(), within, threads

    def has(self, seconds: float) -> bool:
        """Return whether what takes so long on an idle device ends in time at the pace of now."""
        now, busy = _now()
        passed = now - self._started
        pace = max(1.0, self.threads * passed / max(busy - self._busy, 1e-3)) if passed > 0.1 else 1.0  # noqa: PLR2004 - too short to tell
        return passed + pace * seconds < self._within


def _now() -> tuple[float, float]:
    """Return the clock, and the processor seconds that this process has used."""
    return time.perf_counter(), time.process_time()


def timed(run: Callable[[], object], clock: Clock | None = None) -> float:
    """Return the least seconds of a few runs, the first of which counts only where there is no time for another."""
    seconds: list[float] = []
    while len(seconds) <= REPEATS and (not seconds or clock is None or clock.has(0.0)):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:] or seconds)


def in_turns(runs: Sequence[Callable[[], object]]) -> list[list[float]]:
    """Return the seconds of each run, `TIMED_RUNS` times: they take turns, so that a busy moment meets them all."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(UNTIMED_RUNS + TIMED_RUNS):
        for run, own in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            own.append(time.perf_counter() - started)
    return [own[UNTIMED_RUNS:] for own in seconds]
