"""What ends a study: a limit, the space, or a front that stays as it is."""

from collections.abc import Sequence

from tuner.results.records.trial import TrialRecord, binding
from tuner.search.setting import CLOSING_SECONDS, Setting
from tuner.search.trials.queue import Queue
from tuner.units import format_seconds

REFUSALS_IN_A_ROW = 50


def reason_to_end(
    setting: Setting, queue: Queue, records: Sequence[TrialRecord], idle: int, flat_seconds: float
) -> str:
    """Return what ends a study now; empty where nothing does.

    Args:
        setting: The study's.
        queue: Its trials.
        records: Those that have ended, and say something on this device.
        idle: How many of the last trials were refused, failed or repeated.
        flat_seconds: Seconds since the front last became better.
    """
    limits = setting.limits
    if limits.trials is not None and queue.done(records) >= limits.trials:
        return f"{limits.trials} trials are done"
    if setting.seconds_left <= CLOSING_SECONDS:
        return "the time is up"
    if limits.flat_seconds is not None and flat_seconds > limits.flat_seconds:
        return f"no better front for {format_seconds(limits.flat_seconds)}"
    if idle >= REFUSALS_IN_A_ROW:
        return f"{idle} plans in a row were {_obstacle(records[-idle:])}"
    return ""


def _obstacle(last: Sequence[TrialRecord]) -> str:
    """Say what kept the last plans from running."""
    broken = [name for record in last for name in record.constraint if record.state == "rejected"]
    repeats = sum(record.same_as is not None for record in last)
    if repeats > len(broken):
        return "tried before: the search space has nothing new"
    if not broken:
        return "failures"
    return f"refused, most of them for {binding(max(set(broken), key=broken.count))}"
