"""Who works on a shared study, and where."""

from collections.abc import Callable
from dataclasses import dataclass

from tuner.results.kinds import Kind
from tuner.search.shared.weights import SharedWeights


@dataclass(frozen=True, slots=True)
class Place:
    """Who works on a shared study, and where.

    Attributes:
        worker: The worker's name.
        kinds: Kinds of devices, by name, this one's among them.
        rest: Sleeps so many seconds, where there is nothing to do; raises where the user or the clock ends the run.
        say: Receives messages for the user.
        weights: Where weights of the front are put for others; None where each worker keeps its own.
    """

    worker: str
    kinds: dict[str, Kind]
    rest: Callable[[float], None]
    say: Callable[[str], object]
    weights: SharedWeights | None = None
