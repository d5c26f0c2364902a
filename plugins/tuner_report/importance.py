"""Which knobs mattered: PED-ANOVA on the trials that were scored on the same samples.

Source: Watanabe, Bansal and Hutter, "PED-ANOVA", IJCAI 2023, as Optuna has it.
"""

import math
import warnings
from collections import Counter
from collections.abc import Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from tuner.plan.parts import Scalar
from tuner.results.records.trial import SCORED, TrialRecord, varied_knobs
from tuner.results.scores.objectives import Objective

#: Trials of a rung from which an importance is more than chance, and the share of them that counts as good.
LEAST_TRIALS, GOOD = 20, 0.25


def trials_of_largest_rung(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials of the rung on which most were scored: good ones and bad ones, on the same samples."""
    trials = [one for one in records if one.state in SCORED and one.same_as is None]
    rungs = Counter(one.rung for one in trials)
    if not rungs:
        return []
    largest = max(rungs, key=lambda rung: (rungs[rung], rung))
    return [one for one in trials if one.rung == largest]


def knob_importance(records: Sequence[TrialRecord], objective: Objective) -> dict[str, float]:
    """Return how much each knob decides whether a trial is among the best quarter, as shares of 1, the largest first.

    Empty for fewer than 20 trials, which are all of the same samples, or where no knob had two values.
    """
    if len(records) < LEAST_TRIALS:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {name: _distribution(values) for name, values in varied_knobs(records).items()}
    if not ranges:
        return {}
    study = optuna.create_study()
    for record in records:
        used = {name: one for name, one in ranges.items() if name in record.knobs}
        types = {name: str if isinstance(one, CategoricalDistribution) else float for name, one in used.items()}
        values = {name: kind(record.knobs[name]) for name, kind in types.items()}
        loss = objective.loss(record.values)
        study.add_trial(optuna.trial.create_trial(params=values, distributions=used, values=[loss]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials of a condition are said by the number of trials
        evaluator = PedAnovaImportanceEvaluator(target_quantile=GOOD)
        shares = get_param_importances(study, evaluator=evaluator)
    return {name: share for name, share in shares.items() if math.isfinite(share)}


def _distribution(values: Sequence[Scalar]) -> BaseDistribution:
    """Return the range that a knob's values were drawn from, as far as they show it."""
    if any(isinstance(value, bool | str) for value in values):
        return CategoricalDistribution(sorted(map(str, set(values))))
    numbers = [float(value) for value in values]
    low, high = min(numbers), max(numbers)
    return FloatDistribution(low, high, log=low > 0 and high / low > 10)  # noqa: PLR2004 - orders of magnitude
