"""How many threads steps run on: the fastest number, measured again when the load changes."""

from collections import Counter
from collections.abc import Callable

import pytest

from tuner.backends.torch.threads import CHANGED, EARLIEST, LATEST, TRIED, WINDOW, ThreadChoice


class Device:
    """A clock that moves with every step, by what the number of threads costs."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost, self.now, self.threads = cost, 0.0, 0
        self.used: Counter[int] = Counter()

    def clock(self) -> float:
        return self.now

    def use(self, threads: int) -> None:
        self.threads = threads

    def run(self, choice: ThreadChoice, steps: int) -> None:
        for _ in range(steps):
            with choice:
                self.used[self.threads] += 1
                self.now += self.cost(self.threads)


def chosen(device: Device, most: int) -> ThreadChoice:
    return ThreadChoice(most, device.clock, device.use)


@pytest.mark.parametrize(("cost", "expected"), [(lambda n: 1 / n, 4), (float, 1), (lambda n: abs(n - 2) + 1.0, 2)])
def test_the_fastest_number_is_used(cost: Callable[[int], float], expected: int) -> None:
    device = Device(cost)
    choice = chosen(device, 4)
    device.run(choice, 100)
    assert choice.threads == expected
    tried = {count: number for count, number in device.used.items() if count != expected}
    assert all(number == TRIED for number in tried.values())
    assert set(device.used) == {1, 2, 4}


@pytest.mark.parametrize(("most", "counts"), [(1, set()), (2, {1, 2}), (3, {1, 2, 3}), (8, {1, 2, 4, 8})])
def test_powers_of_two_are_tried_and_all(most: int, counts: set[int]) -> None:
    device = Device(lambda _: 1.0)
    device.run(chosen(device, most), 4 * TRIED)
    assert set(device.used) - {0} == counts


def test_a_load_that_changes_is_measured_again() -> None:
    busy = False
    device = Device(lambda n: 10.0 * n if busy else 1.0 / n)
    choice = chosen(device, 2)
    device.run(choice, 2 * TRIED + WINDOW)
    assert choice.threads == 2
    busy = True
    device.run(choice, EARLIEST + WINDOW + 2 * TRIED)
    assert choice.threads == 1
    assert CHANGED > 1


def test_it_is_measured_again_after_a_while_even_where_nothing_seems_to_change() -> None:
    faster = False
    device = Device(lambda n: 1.0 if n == 1 or not faster else 0.5)
    choice = chosen(device, 2)
    device.run(choice, 2 * TRIED)
    choice.threads = 1
    faster = True
    device.run(choice, LATEST + 2 * TRIED)
    assert choice.threads == 2
