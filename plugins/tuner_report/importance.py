"""Which knobs mattered: PED-ANOVA on the trials that were scored on the same samples.

Source: Watanabe, Bansal and Hutter, "PED-ANOVA", IJCAI 2023, as Optuna has it.
"""

import math
import random
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

from tuner.plan.parts import Scalar
from tuner.results.records.trial import SCORED, TrialRecord, varied_knobs
from tuner.results.scores.objectives import DOMAINS, Objective
from tuner_report.sections import LEAST_TRIALS

#: Share of the trials that counts as good.
GOOD = 0.25
#: A knob is shown where it matters more than any does in so many shuffles of the scores: with 19, chance is 5 %.
SHUFFLES = 19


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

    Knobs that matter no more than by chance are left out. Empty for fewer than 20 trials, which are all of the same
    samples, where no knob had two values, or where the samples cannot tell the best quarter from the others.
    """
    if len(records) < LEAST_TRIALS or not is_told_apart(records, objective):
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ranges = {name: _distribution(values) for name, values in varied_knobs(records).items()}
    losses = [objective.loss(record.values) for record in records]
    if not ranges:
        return {}
    study = _study(records, ranges)
    found = _importance(study, losses)
    draw = random.Random(0)
    shuffled = (_importance(study, draw.sample(losses, len(losses))) for _ in range(SHUFFLES))
    chance = max(max(one.values(), default=0.0) for one in shuffled)  # of any knob: of many, one looks like it
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items() if value > chance}


def is_told_apart(records: Sequence[TrialRecord], objective: Objective) -> bool:
    """Return whether the best quarter of trials is better than the others by more than the samples may be wrong.

    That is the 95 % interval (Wilson) of an accuracy; other values only have to differ.
    """
    losses, plan = sorted(objective.loss(record.values) for record in records), records[0].plan
    good = math.ceil(GOOD * len(losses))
    best, other = median(losses[:good]), median(losses[good:])
    samples = 0 if plan is None else plan.scored.get(DOMAINS.get(objective.name, ""), 0)
    bounds = None if plan is None else plan.task.targets.interval(min(1.0, -best), samples)
    return best < other if bounds is None else bounds[0] > -other


def _study(records: Sequence[TrialRecord], ranges: Mapping[str, BaseDistribution]) -> optuna.Study:
    """Return the trials with their knobs alone."""
    study = optuna.create_study()
    for record in records:
        used = {name: one for name, one in ranges.items() if name in record.knobs}
        types = {name: str if isinstance(one, CategoricalDistribution) else float for name, one in used.items()}
        values = {name: kind(record.knobs[name]) for name, kind in types.items()}
        study.add_trial(optuna.trial.create_trial(params=values, distributions=used, values=[0.0]))
    return study


def _importance(study: optuna.Study, losses: Sequence[float]) -> dict[str, float]:
    """Return PED-ANOVA's importance of each knob, the largest first, of trials with these losses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials of a condition are said by the number of trials
        evaluator = PedAnovaImportanceEvaluator(target_quantile=GOOD)
        by_trial: dict[str, Any] = {"target": lambda trial: losses[trial.number], "normalize": False}
        shares = get_param_importances(study, evaluator=evaluator, **by_trial)
    return {name: share for name, share in shares.items() if math.isfinite(share)}


def _distribution(values: Sequence[Scalar]) -> BaseDistribution:
    """Return the range that a knob's values were drawn from, as far as they show it."""
    if any(isinstance(value, bool | str) for value in values):
        return CategoricalDistribution(sorted(map(str, set(values))))
    numbers = [float(value) for value in values]
    low, high = min(numbers), max(numbers)
    return FloatDistribution(low, high, log=low > 0 and high / low > 10)  # noqa: PLR2004 - orders of magnitude
