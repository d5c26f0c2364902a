"""The members of a front that are worth a look: no useless ones, and of near-equal ones the first."""

import math
from collections.abc import Mapping, Sequence

from tuner.results.scores.objectives import DOMAINS, Objective
from tuner.results.scores.pareto import scaled_loss

#: As many members as a person reads.
MOST = 12
#: Costs that differ by less, in log, are near-equal: a tenth.
NEAR_COST = math.log(1.1)


def useful(
    members: Mapping[int, Mapping[str, float]], untouched: Mapping[str, float], most_frequent: float
) -> dict[int, Mapping[str, float]]:
    """Return the members whose local accuracy is not below what comes free; all of them where none is above.

    Args:
        members: Values by trial number.
        untouched: The given model's own accuracies.
        most_frequent: Local accuracy of whoever always answers with the most frequent class.
    """
    floor = max(untouched.get("local_accuracy", 0.0), most_frequent)
    kept = {trial: values for trial, values in members.items() if values.get("local_accuracy", math.inf) >= floor}
    return kept or dict(members)


def shortlist(
    members: Mapping[int, Mapping[str, float]],
    objectives: Sequence[Objective],
    samples: Mapping[str, int],
    first: int | None,
    most: int = MOST,
) -> tuple[int, ...]:
    """Return at most so many members, ascending: of those that no difference tells apart, the one that comes first.

    Members are near-equal where their accuracies differ by less than the standard error of the validation set, and
    their other values by less than a tenth. Where too many are left, they are looked at more coarsely.

    Args:
        members: Values by trial number.
        objectives: What counts.
        samples: Number of validation samples by domain.
        first: The member that is kept in any case, such as the best.
        most: The largest number of members.
    """
    order = sorted(members, key=lambda trial: (trial != first, objectives[0].loss(members[trial]), trial))
    coarse = 1.0
    while True:
        kept: list[int] = []
        for trial in order:
            if not any(_is_near(members[trial], members[other], objectives, samples, coarse) for other in kept):
                kept.append(trial)
        if len(kept) <= most:
            return tuple(sorted(kept))
        coarse *= 1.5


def _is_near(
    a: Mapping[str, float],
    b: Mapping[str, float],
    objectives: Sequence[Objective],
    samples: Mapping[str, int],
    coarse: float,
) -> bool:
    return all(
        abs(scaled_loss(one, a) - scaled_loss(one, b)) <= coarse * _tolerance(one, b, samples) for one in objectives
    )


def _tolerance(objective: Objective, values: Mapping[str, float], samples: Mapping[str, int]) -> float:
    count = samples.get(DOMAINS.get(objective.name, ""), 0)
    if count:
        share = values[objective.name]
        return math.sqrt(max(share * (1 - share), 0.25 / count) / count)  # of 0 % and 100 % too
    if objective.unit in {"s", "B"}:
        return NEAR_COST
    return 0.1 * abs(values[objective.name])
