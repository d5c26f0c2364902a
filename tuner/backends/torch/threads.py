"""How many threads steps run on: measured while they run, and again when the load changes."""

import time
from collections import deque
from collections.abc import Callable
from functools import wraps
from statistics import median
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import torch

#: Steps that each number of threads is tried for, in turns.
TRIED = 3
#: Steps after which it is measured again in any case, and before which it is not.
LATEST, EARLIEST = 512, 32
#: Steps that take so many times what was measured show that the load has changed.
CHANGED = 1.5
WINDOW = 8


Owner = TypeVar("Owner", bound="HasThreads")
Given = ParamSpec("Given")
Result = TypeVar("Result")


class HasThreads(Protocol):
    """What runs steps on threads that are chosen."""

    threads: "ThreadChoice"


def on_fastest_threads(
    step: Callable[Concatenate[Owner, Given], Result],
) -> Callable[Concatenate[Owner, Given], Result]:
    """Run a method on as many threads as are fastest now; its object has a `ThreadChoice` as ``threads``."""

    @wraps(step)
    def chosen(self: Owner, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        with self.threads:
            return step(self, *args, **kwargs)

    return chosen


class ThreadChoice:
    """Sets the number of threads around every step: the one whose steps were the fastest.

    On busy cores threads wait for each other, and one may be several times as fast as all; on idle ones it is not.

    Args:
        most: The largest number of threads. With one there is nothing to choose.
        clock: Returns seconds.
        use: Sets the number of threads.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
