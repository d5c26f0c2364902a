"""The queueing network of `benchmarks.fleet` against closed forms."""

from math import factorial

import pytest

from benchmarks.fleet.model import Station, throughput


@pytest.mark.parametrize("workers", [1, 2, 16, 100])
def test_one_server_is_the_machine_repairman(workers: int) -> None:
    own, shared = 2.0, 0.05
    weights = [factorial(workers) // factorial(workers - n) * (shared / own) ** n for n in range(workers + 1)]
    busy = 1 - weights[0] / sum(weights)
    assert throughput(workers, own, [Station("one", shared)]) == pytest.approx(busy / shared)


def test_many_workers_finish_what_the_slowest_station_serves() -> None:
    stations = Station("two processors", 0.1, 2.0), Station("lock", 0.01), Station("beating", 0.03, 1.0, busy=0.5)
    assert throughput(1000, 2.0, stations) == pytest.approx(0.5 / 0.03, rel=1e-3)
    assert throughput(1, 2.0, stations[:2]) == pytest.approx(1 / 2.11)
    assert throughput(10, 2.0, [Station("full", 0.1, busy=1.0)]) == 0.0
