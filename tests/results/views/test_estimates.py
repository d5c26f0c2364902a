"""How far a run's estimates were off, before and after calibration."""

from collections.abc import Mapping

import pytest

from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate
from tuner.results.records.trial import TrialRecord
from tuner.results.views.estimates import EstimateErrors, estimate_errors

PLAN = TrialPlan(example_model(2), example_task())


def record(expected: float, plain: float | None, measured: Mapping[str, float], **more: object) -> TrialRecord:
    """Return a trial whose costs were all expected to be the same number."""

    def every(value: float) -> Estimate:
        return Estimate(value, value, int(value), 1)

    uncalibrated = None if plain is None else every(plain)
    settings = {"trial": 0, "state": "done", "uncalibrated": uncalibrated, **more}
    return TrialRecord(**settings, plan=PLAN, estimate=every(expected), values=dict(measured))  # type: ignore[arg-type]


def test_errors_are_relative_to_what_was_measured_and_without_sign() -> None:
    peaks = [(90, 50), (110, 200), (100, 100), (130, 300)]
    records = [record(expected, plain, {"peak_bytes": 100.0}) for expected, plain in peaks]
    (errors,) = estimate_errors(records).values()
    assert errors.trials == 4
    assert [errors.median, errors.nine_in_ten] == pytest.approx([0.1, 0.3])
    assert [errors.plain_median, errors.plain_nine_in_ten] == [pytest.approx(0.5), pytest.approx(2.0)]


def test_seconds_of_trials_that_were_cut_short_are_no_errors() -> None:
    measured = {"peak_bytes": 100.0, "train_seconds": 50.0}
    found = estimate_errors([record(100, 100, measured, state="stopped")])
    assert found == {"peak_bytes": EstimateErrors(1, 0.0, 0.0, 0.0, 0.0)}


def test_refused_repeated_and_unestimated_trials_tell_nothing() -> None:
    assert estimate_errors([record(1, 1, {}, state="rejected"), record(1, 1, {"peak_bytes": 2.0}, same_as=0)]) == {}


def test_records_of_earlier_versions_have_no_uncalibrated_errors() -> None:
    (errors,) = estimate_errors([record(100, None, {"peak_bytes": 50.0})]).values()
    assert errors == EstimateErrors(1, 1.0, 1.0)
