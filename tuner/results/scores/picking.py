"""The Pareto front of a run's trials, and the trial that is picked by default."""

from collections.abc import Callable, Collection, Sequence

from tuner.results.records.judging import comparable
from tuner.results.records.trial import TrialRecord
from tuner.results.scores.objectives import Objective
from tuner.results.scores.pareto import Values, best, front, useful


def front_and_best(
    records: Collection[TrialRecord],
    objectives: Sequence[Objective],
    has_weights: Callable[[int], bool],
    untouched: Values,
    most_frequent: float,
    forgetting: float | None,
) -> tuple[list[int], int | None]:
    """Return the trials on the Pareto front, and the one that `best` picks; None where there is none.

    The pick is `useful`, and on the front or still has weights: samples that cannot tell two trials apart may have put
    the one with the lower loss behind a cheaper one. Of 80 photos of sign digits, a tail of 7 blocks has as many right
    as one of 12; of 1,000 others, a point less.
    """
    members = comparable(records)
    on_front = front(members, objectives)
    compared = [record for record in records if record.trial in members]
    here = {one.trial: one.values for one in compared if one.trial in on_front or has_weights(one.trial)}
    samples = next((record.plan.scored for record in compared if record.plan is not None), {})
    worth = {trial: members[trial] for trial in useful(here, untouched, most_frequent)}
    return on_front, best(worth, untouched, samples, forgetting, {one.trial: training_flops(one) for one in compared})


def training_flops(record: TrialRecord) -> float:
    """Return the FLOPs of all forward passes of a trial's training."""
    plan = record.plan
    return 0.0 if plan is None else plan.model.tail_flops(plan.trainable) * plan.recipe.epochs * plan.train_samples
