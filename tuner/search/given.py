"""The scores of the given model, on the samples of each rung."""

import time
from collections.abc import Callable, Mapping

from tuner.errors import BudgetError
from tuner.plan.info import TaskInfo
from tuner.search.listener import SCORING, Listener
from tuner.search.rungs import SAMPLES


class GivenModel:
    """Scores the given model once for every rung that a trial is scored on.

    Args:
        score: Returns its scores on a share of the validation samples.
        task: The task in numbers.
        listener: Receives a warning where there is no time for it.

    Attributes:
        seconds: Time that it took so far.
    """

    def __init__(self, score: Callable[[float], Mapping[str, float]], task: TaskInfo, listener: Listener) -> None:
        self._score, self._task, self._listener = score, task, listener
        self._known: dict[int, Mapping[str, float]] = {}
        self.seconds = 0.0

    def floor(self, rung: int) -> float:
        """Return the local accuracy that comes free: the given model's, or that of the most frequent class."""
        return max(self._task.most_frequent, self.on(rung).get("local_accuracy", 0.0))

    def on(self, rung: int) -> Mapping[str, float]:
        """Return the scores on a rung's samples; those on another rung's where the time is up."""
        if rung not in self._known:
            started = time.monotonic()
            self._listener.phase(SCORING)
            try:
                self._known[rung] = self._score(SAMPLES**rung)
            except BudgetError as error:
                self._listener.say(f"warning: {error}")
                return next(iter(self._known.values()), {})
            finally:
                self.seconds += time.monotonic() - started
        return self._known[rung]
