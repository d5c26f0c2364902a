"""How many workers a study carries: a closed queueing network, by exact mean value analysis.

A worker trains for a while (a delay), and then waits in turn for what all workers share: processors, the lock under
which trials are numbered, the proxy. Reiser and Lavenberg (1980), "Mean-value analysis of closed multichain queuing
networks"; several processors by Seidmann, Schweitzer and Shalev-Oren (1987): a queue that is as many times as quick,
and a delay for the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Station:
    """What all workers share.

    Attributes:
        name: Of it.
        seconds: That a trial takes of it, in all its visits.
        servers: How many it can serve at once; part of one where others use it too.
        busy: Share of its time that is taken whatever trials come: by heartbeats.
    """

    name: str
    seconds: float
    servers: float = 1.0
    busy: float = 0.0


def throughput(workers: int, seconds: float, stations: Sequence[Station]) -> float:
    """Return the trials a second that so many workers finish; 0 where heartbeats alone are too much for a station.

    Args:
        workers: How many there are.
        seconds: That a trial takes of a worker's own time.
        stations: That they share.
    """
    if any(one.busy >= 1 for one in stations):
        return 0.0
    queued = [one.seconds / (1 - one.busy) / max(one.servers, 1e-9) for one in stations]
    own = seconds + sum(max(0.0, one.seconds * (1 - 1 / one.servers)) for one in stations)
    waiting, found = [0.0] * len(stations), 0.0
    for count in range(1, workers + 1):
        taken = [each * (1 + before) for each, before in zip(queued, waiting, strict=True)]
        found = count / (own + sum(taken))
        waiting = [found * one for one in taken]
    return found
