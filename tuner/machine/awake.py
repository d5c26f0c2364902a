"""Time as budgets count it: without that in which this process stood still."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # Windows, where no signal stops a process
    getrusage = None  # type: ignore[assignment]

#: A longer time between two looks at the clock is a gap, if the process worked for less than this share of it, and its
#: threads woke up less often.
GAP_SECONDS, IDLE_SHARE, WAKES_A_SECOND = 2.0, 0.1, 20
LOOK_SECONDS = 0.25
_BOOT = getattr(time, "CLOCK_BOOTTIME", 0)  # of Linux: it goes on while the machine is suspended


def _wakes() -> float:
    """Return how often threads of this process have waited: those that want the interpreter wake every 5 ms."""
    return 1e3 * time.monotonic() if getrusage is None else getrusage(RUSAGE_SELF).ru_nvcsw


class AwakeClock:
    """`time.monotonic` without the time in which this process was stopped or frozen (SIGSTOP, a paused container).

    While the clock is watched, a thread looks at it again and again: where the thread did not come to it, and the
    process worked next to nothing, it stood still; but not if its threads went on to wait for a call that holds the
    interpreter. Linux's monotonic clock already leaves out the time in which the
    machine was suspended, and no clock that is set forward or back changes it.

    Attributes:
        stopped: Seconds that were left out so far.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.process_time,
        boot: Callable[[], float] = lambda: time.clock_gettime(_BOOT) if _BOOT else time.monotonic(),
        wakes: Callable[[], float] = _wakes,
    ) -> None:
        self._monotonic, self._worked, self._boot, self._wakes = monotonic, worked, boot, wakes
        self._lock = threading.RLock()  # a signal's handler may look, too
        self._watchers, self.stopped = 0, 0.0
        self._last, self._last_worked, self._last_wakes = monotonic(), worked(), wakes()
        self._begun = boot() - self._last

    def now(self) -> float:
        """Return the seconds that this process was awake, from any point in time."""
        with self._lock:
            at, worked, wakes = self._monotonic(), self._worked(), self._wakes()
            gap, is_idle = at - self._last, worked - self._last_worked < IDLE_SHARE * (at - self._last)
            if self._watchers and gap > GAP_SECONDS and is_idle and wakes - self._last_wakes < WAKES_A_SECOND * gap:
                self.stopped += gap
            self._last, self._last_worked, self._last_wakes = at, worked, wakes
            return at - self.stopped

    @property
    def asleep(self) -> float:
        """Seconds so far that do not count: stopped, or suspended with the machine."""
        return self.stopped + max(0.0, self._boot() - self._monotonic() - self._begun)

    def begin(self) -> None:
        """Count gaps from now on: somebody looks several times in `GAP_SECONDS`."""
        self.now()
        self._watchers += 1

    @contextmanager
    def watched(self, look: Callable[[], object] | None = None) -> Iterator[None]:
        """Look at the clock again and again during a block; `look` is what looks, in a thread of its own."""
        done, look = threading.Event(), look or self.now

        def watch() -> None:
            while not done.wait(LOOK_SECONDS):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        self.begin()
        watcher.start()
        try:
            yield
        finally:
            self._watchers -= 1
            done.set()
            watcher.join()


#: The clock of this process.
CLOCK = AwakeClock()
