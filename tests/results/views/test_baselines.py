"""What a run is compared with: baselines by pairs of answers, and estimates by what was measured."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.results.views.test_pick import INFO, run_of
from tuner.metrics import paired_interval
from tuner.plan.example import example_model, example_task
from tuner.plan.trial import TrialPlan
from tuner.planner.price import Estimate
from tuner.results.records.baseline import LINEAR_PROBE, Baseline, discordant, packed
from tuner.results.records.trial import TrialRecord
from tuner.results.views.baselines import not_better_than, rows, verdicts
from tuner.results.views.estimates import EstimateErrors, estimate_errors


def test_pairs_are_counted_over_several_trainings() -> None:
    generator = np.random.default_rng(0)
    one, other = (generator.random((2, 13)) < 0.5 for _ in range(2))
    counted = discordant([packed(part) for part in one], [packed(part) for part in other])
    assert counted == (int((one & ~other).sum()), int((other & ~one).sum()))


def test_the_paired_interval_is_that_of_bonett_and_price() -> None:
    low, high = paired_interval(9, 3, 100)
    assert (round(low, 4), round(high, 4)) == (-0.0122, 0.1298)  # by hand: (10 − 4) / 102 ± 1.96 · 0.0362
    assert paired_interval(0, 0, 50)[0] < 0 < paired_interval(0, 0, 50)[1]


def test_a_trial_that_pairs_do_not_tell_from_the_probe_is_named() -> None:
    plan = TrialPlan(INFO.model, INFO.task)
    count = plan.scored["local"]
    right = np.arange(count) < count // 2
    better, same, worse = right | (np.arange(count) >= count // 4), right.copy(), np.zeros(count, bool)
    trials = [
        TrialRecord(number, "done", plan, values={"local_accuracy": float(flags.mean())}, right=(packed(flags),))
        for number, flags in enumerate((better, same, worse))
    ]
    probe = Baseline(LINEAR_PROBE, {"local_accuracy": float(right.mean())}, right=(packed(right),))
    given = Baseline("untouched", note="the model has no output for these classes")
    run = run_of(*trials, front=(0, 1, 2))
    run = replace(run, info=replace(INFO, baselines=(given, probe)))
    assert [not_better_than(run, one) for one in trials] == [[], [LINEAR_PROBE], [LINEAR_PROBE]]
    surely, line = verdicts(run, (0, 1, 2))
    assert surely.startswith("trial 2 is worse than the linear probe: local accuracy 0.0 % against ")
    assert line.startswith("trial 1 is not better than the linear probe on your ")
    (name, cells), _ = rows(run)
    assert (name, cells[0]) == ("untouched", "no output")


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
    (errors,) = estimate_errors([record(100, None, {"peak_bytes": 50.0})]).values()
    assert errors == EstimateErrors(1, 1.0, 1.0)
