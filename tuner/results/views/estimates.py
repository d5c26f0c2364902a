"""How far the estimates of a run were off: calibrated as each trial began, and by the device's rates alone."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.planner.price import Estimate
from tuner.results.records.trial import SCORED, TrialRecord

#: What is estimated before a trial and measured in it.
ESTIMATED = ("peak_bytes", "train_seconds")


@dataclass(frozen=True, slots=True)
class EstimateErrors:
    """Errors of one cost's estimates: the absolute value of expected / measured - 1.

    Attributes:
        trials: How many were estimated and measured.
        median: Of the estimates that decided; nine of ten of them are off by at most `nine_in_ten`.
        plain_median: Of the estimates before finished trials corrected them, as `plain_nine_in_ten`; None without any.
    """

    trials: int
    median: float
    nine_in_ten: float
    plain_median: float | None = None
    plain_nine_in_ten: float | None = None


def estimate_errors(records: Iterable[TrialRecord]) -> dict[str, EstimateErrors]:
    """Return the errors of a run's estimates by cost; costs that no trial has measured are left out.

    Seconds are those of trials that trained to their end.
    """
    found, measured = {}, [one for one in records if one.state in SCORED and one.same_as is None]
    for name in ESTIMATED:
        ended = [one for one in measured if name == "peak_bytes" or one.state == "done"]
        errors = [error for one in ended if (error := _error(one, one.estimate, name)) is not None]
        plain = [error for one in ended if (error := _error(one, one.uncalibrated, name)) is not None]
        if errors:
            both = _quantile(errors, 0.5), _quantile(errors, 0.9)
            before = (_quantile(plain, 0.5), _quantile(plain, 0.9)) if plain else (None, None)
            found[name] = EstimateErrors(len(errors), *both, *before)
    return found


def _error(record: TrialRecord, estimate: Estimate | None, name: str) -> float | None:
    measured = record.values.get(name, 0.0)
    return abs(getattr(estimate, name) / measured - 1) if estimate is not None and measured > 0 else None


def _quantile(errors: Sequence[float], share: float) -> float:
    """Return the least error that so many are not above."""
    return sorted(errors)[max(0, math.ceil(share * len(errors)) - 1)]
