"""What the search is compared with: pairs of answers, and whether a trial is better."""

from dataclasses import replace

import numpy as np

from tests.results.views.test_pick import INFO, run_of
from tuner.metrics import paired_interval
from tuner.plan.trial import TrialPlan
from tuner.results.records.baseline import LINEAR_PROBE, Baseline, discordant, packed
from tuner.results.records.trial import TrialRecord
from tuner.results.views.baselines import not_better_than, rows, verdicts


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
    better, same = right | (np.arange(count) >= count // 4), right.copy()
    trials = [
        TrialRecord(number, "done", plan, values={"local_accuracy": float(flags.mean())}, right=(packed(flags),))
        for number, flags in enumerate((better, same))
    ]
    probe = Baseline(LINEAR_PROBE, {"local_accuracy": float(right.mean())}, right=(packed(right),))
    given = Baseline("untouched", note="the model has no output for these classes")
    run = run_of(*trials, front=(0, 1))
    run = replace(run, info=replace(INFO, baselines=(given, probe)))
    assert [not_better_than(run, one) for one in trials] == [[], [LINEAR_PROBE]]
    (line,) = verdicts(run, (0, 1))
    assert line.startswith("trial 1 is not better than the linear probe on the user's ")
    (name, cells), _ = rows(run)
    assert (name, cells[0]) == ("untouched", "no output")
