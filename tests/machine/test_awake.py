"""Time as budgets count it."""

from tuner.machine.awake import AwakeClock


class Clocks:
    """Clocks of a system that the test moves."""

    def __init__(self) -> None:
        self.monotonic = self.worked = self.wakes = 0.0
        self.suspended = 100.0

    def clock(self) -> AwakeClock:
        times = lambda: self.monotonic, lambda: self.worked, lambda: self.monotonic + self.suspended
        return AwakeClock(*times, lambda: self.wakes)


def test_only_the_time_that_a_watched_process_stood_still_is_left_out() -> None:
    system = Clocks()
    clock = system.clock()
    system.monotonic = 60.0
    assert (clock.now(), clock.asleep) == (60.0, 0.0)  # nobody looked meanwhile: it may have waited
    clock.begin()
    system.monotonic = 61.0
    assert clock.now() == 61.0
    system.monotonic, system.worked = 70.0, 5.0
    assert clock.now() == 70.0  # it worked, and nobody came to look
    system.monotonic = 130.0
    assert (clock.now(), clock.asleep) == (70.0, 60.0)
    system.monotonic = 131.0
    assert clock.now() == 71.0
    system.monotonic, system.wakes = 141.0, 2000.0
    assert clock.now() == 81.0  # a call held the interpreter, for which the others waited


def test_a_suspended_machine_costs_nothing_and_is_noticed() -> None:
    system = Clocks()
    clock = system.clock()
    system.monotonic, system.suspended = 1.0, 3700.0
    assert (clock.now(), clock.asleep) == (1.0, 3600.0)
