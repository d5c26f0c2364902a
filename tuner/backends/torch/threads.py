"""How many threads steps run on: measured while they run, and again when the load changes."""

import time
from collections import deque
from collections.abc import Callable
from statistics import median

import torch

#: Steps that each number of threads is tried for, in turns.
TRIED = 3
#: Steps after which it is measured again in any case, and before which it is not.
LATEST, EARLIEST = 512, 32
#: The load has changed where the median of so many steps is so many times what was measured.
WINDOW, CHANGED = 8, 1.5


class ThreadChoice:
    """Sets the number of threads, `most` at most, around every step: the one whose steps were the fastest.

    On busy cores threads wait for each other, and one may be several times as fast as all; on idle ones it is not.
    """

    def __init__(
        self,
        most: int,
        clock: Callable[[], float] = time.perf_counter,
        use: Callable[[int], None] = torch.set_num_threads,
    ) -> None:
        self._counts = [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]
        self._clock, self._use = clock, use
        self.threads = most
        self._restart()

    def __enter__(self) -> None:
        """Begin a step."""
        if len(self._counts) > 1:
            if self._tries:
                self.threads = self._tries[0]
            self._use(self.threads)
            self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        """End it, and note how long it took."""
        if len(self._counts) == 1:
            return
        taken = self._clock() - self._began
        if self._tries:
            self._taken[self._tries.popleft()].append(taken)
            if not self._tries:
                self._choose()
            return
        self._steps += 1
        self._recent.append(taken)
        changed = len(self._recent) == WINDOW and median(self._recent) > CHANGED * self._expected
        if self._steps >= LATEST or (changed and self._steps >= EARLIEST):
            self._restart()

    def _restart(self) -> None:
        """Measure from here on."""
        self._tries = deque(count for _ in range(TRIED) for count in reversed(self._counts))
        self._taken: dict[int, list[float]] = {count: [] for count in self._counts}
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._steps, self._expected, self._began = 0, 0.0, 0.0

    def _choose(self) -> None:
        """Choose by the least of each, the first left out: a number of threads that is new makes a pool of them."""
        least = {count: min(taken[1:]) for count, taken in self._taken.items()}
        self.threads = min(least, key=lambda count: least[count])
        self._expected = least[self.threads]
