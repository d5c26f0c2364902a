"""The Pareto front, its knee, its best member, and those that are worth a look."""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import le

from tuner.metrics import wilson
from tuner.results.scores.objectives import DOMAINS, LEFT_OUT_ACCURACY, Objective

#: Of a member, by name.
Values = Mapping[str, float]

COST_UNITS = frozenset({"s", "B"})
GAIN_SHARE, GLOBAL_DROP = 0.9, 0.05
#: Global accuracy that the best pick may lose where no limit is given.
FORGETTING = 0.02
#: As many members as a person reads.
MOST = 12
#: Costs that differ by less, in log, are near-equal: a tenth.
NEAR_COST = math.log(1.1)


def front(values: Mapping[int, Values], objectives: Sequence[Objective]) -> list[int]:
    """Return the keys that nothing dominates, in ascending order; of equal members the lowest key stays."""
    losses = {key: tuple(one.loss(value) for one in objectives) for key, value in values.items()}
    kept: list[int] = []
    for key in sorted(losses, key=lambda key: (losses[key], key)):  # what beats a member comes before it
        mine = losses[key]
        if not any(all(map(le, losses[rival], mine)) for rival in kept):
            kept.append(key)
    return sorted(kept)


def area(members: Iterable[Values]) -> float:
    """Return the hypervolume of (local, global) accuracy over the origin; the best local accuracy where it is alone."""
    pairs = sorted(((one.get("local_accuracy", 0.0), one.get("global_accuracy", 1.0)) for one in members), reverse=True)
    whole, highest = 0.0, 0.0
    for local, global_ in pairs:
        whole += local * max(0.0, global_ - highest)
        highest = max(highest, global_)
    return whole


def knee(members: Mapping[int, Values], objectives: Sequence[Objective], untouched: Values) -> int | None:
    """Return the balanced member: the smallest distance to the ideal point, costs in log, ties to the lower number.

    Members with at least 90 % of the best local gain and a global drop of at most 5 points come first; where there is
    none, all members are candidates.
    """
    if not members:
        return None
    balanced = {key: value for key, value in members.items() if _is_balanced(value, members, untouched)}
    candidates = balanced or dict(members)
    scaled = {
        key: tuple(scaled_loss(objective, value) for objective in objectives) for key, value in candidates.items()
    }
    columns = list(zip(*scaled.values(), strict=True))
    lows, highs = [min(column) for column in columns], [max(column) for column in columns]

    def distance(key: int) -> float:
        return math.hypot(
            *(
                (value - low) / (high - low) if high > low else 0.0
                for value, low, high in zip(scaled[key], lows, highs, strict=True)
            )
        )

    return min(sorted(candidates), key=distance)


def _is_balanced(value: Values, members: Mapping[int, Values], untouched: Values) -> bool:
    before = untouched.get("local_accuracy", 0.0)
    best = max(member.get("local_accuracy", 0.0) for member in members.values())
    gains = value.get("local_accuracy", 0.0) - before >= GAIN_SHARE * (best - before) - 1e-12
    if "global_accuracy" not in value or "global_accuracy" not in untouched:
        return gains
    return gains and value["global_accuracy"] >= untouched["global_accuracy"] - GLOBAL_DROP - 1e-12


def best(
    members: Mapping[int, Values],
    untouched: Values,
    samples: Mapping[str, int],
    forgetting: float | None = None,
    work: Mapping[int, float] | None = None,
) -> int | None:
    """Return the member with the highest local accuracy of those that keep the known classes; None where there is none.

    Of those within a standard error of the highest, the one with the lowest validation loss: it tells apart what so few
    samples cannot. Of those that it cannot tell apart either (`are_level`), the one that trained the most: 12 blocks of
    MobileNetV2 have 98.5 % of the test photos of sign digits, 7 blocks 97.6, at losses of 0.21 and 0.20 on 80 photos.
    Where no member keeps the known classes, the one with the largest sum of both accuracies. Of solved
    heads that keep them, only the best by leave-one-out takes part; its accuracy alone is compared with the highest
    of the others, as its loss is of the validation samples, which may be easier than all.

    Where a member has all of the user's samples right, they can tell no more: of those with at most one error, the one
    with the highest global accuracy.

    Args:
        members: Values by trial number.
        untouched: The given model's own accuracies.
        samples: Number of validation samples by domain.
        forgetting: Global accuracy that may be lost, as a fraction; `FORGETTING` where it is None.
        work: FLOPs of training by trial number; all the same where it is None.
    """
    if not members:
        return None
    least = least_known(untouched, forgetting)
    kept = {key: one for key, one in members.items() if one.get("global_accuracy", 1.0) >= least}
    if not kept:
        return max(sorted(members), key=lambda key: (_both(members[key]), -members[key].get("train_seconds", 0.0)))
    if (decided := decided_by_known(kept, max(1, samples.get("local", 1)))) is not None:
        return decided
    head, tails = _one_head(kept)
    if not tails:
        return head
    highest = max(one.get("local_accuracy", 0.0) for one in tails.values())
    error = math.sqrt(max(0.0, highest * (1 - highest)) / max(1, samples.get("local", 1)))
    alike = {key: one for key, one in tails.items() if one.get("local_accuracy", 0.0) >= highest - error}
    if not all("local_loss" in one for one in alike.values()):
        alike = {key: one for key, one in tails.items() if one.get("local_accuracy", 0.0) == highest}

    losses = {key: one.get("local_loss", 0.0) for key, one in alike.items()}
    level = [key for key in alike if are_level(losses[key], min(losses.values()), samples.get("local", 1))]

    def order(key: int) -> tuple[float, float, float, float, int]:
        one = alike[key]
        costs = -one.get("global_accuracy", 0.0), one.get("train_seconds", 0.0)
        return -(work or {}).get(key, 0.0), losses[key], *costs, key

    tail = min(level, key=order)
    return tail if head is None or kept[head].get("local_accuracy", 0.0) < highest else head


def are_level(loss: float, lowest: float, samples: int) -> bool:
    """Return whether so many samples cannot tell a mean loss from a lower one.

    A loss varies from sample to sample by about its mean, or twice that, and two trials err on the same samples.
    """
    return loss <= lowest * (1 + 1 / math.sqrt(max(1, samples)))


def least_known(untouched: Values, forgetting: float | None = None) -> float:
    """Return the least global accuracy that keeps the known classes; ``forgetting`` as `best` takes it."""
    return untouched.get("global_accuracy", 0.0) - (FORGETTING if forgetting is None else forgetting) - 1e-12


def _one_head(members: Mapping[int, Values]) -> tuple[int | None, dict[int, Values]]:
    """Return the best of the solved heads that leave-one-out tells apart, if there is one, and the other members."""
    name = LEFT_OUT_ACCURACY.name
    heads = [key for key, one in members.items() if name in one]

    def order(key: int) -> tuple[float, float, float, int]:
        one = members[key]
        return -one[name], one.get("local_loss", 0.0), one.get("train_seconds", 0.0), key

    first = min(heads, key=order, default=None)
    return first, {key: one for key, one in members.items() if name not in one}


def decided_by_known(members: Mapping[int, Values], count: int) -> int | None:
    """Return the member, of those that keep the known classes, that `best` picks for its global accuracy.

    None where the user's ``count`` samples can tell more.
    """
    right = {
        key: min(one.get(LEFT_OUT_ACCURACY.name, 1.0), one.get("local_accuracy", 0.0)) for key, one in members.items()
    }
    errors = {key: round(count * (1 - share)) for key, share in right.items()}  # of what is compared, no whole number
    alike = [key for key, wrong in errors.items() if wrong <= 1]
    if min(errors.values(), default=1) or not all("global_accuracy" in members[key] for key in alike):
        return None

    def order(key: int) -> tuple[float, float, float, int]:
        one = members[key]
        return -one["global_accuracy"], one.get("local_loss", 0.0), one.get("train_seconds", 0.0), key

    return min(alike, key=order)


def _both(values: Values) -> float:
    return values.get("local_accuracy", 0.0) + values.get("global_accuracy", 0.0)


def is_alike(values: Values, chosen: Values, samples: Mapping[str, int], objectives: Sequence[Objective]) -> bool:
    """Return whether no accuracy of a member is below that of the chosen one by more than a standard error."""
    scores = _scores(objectives, values, chosen)
    return all(values[one.name] >= chosen[one.name] - _tolerance(one, chosen, samples) for one in scores)


def is_worth_naming(
    values: Values, chosen: Values, samples: Mapping[str, int], objectives: Sequence[Objective]
) -> bool:
    """Return whether no accuracy of a member is surely below that of the chosen one, or some is surely above it."""
    scores = _scores(objectives, values, chosen)
    gains = any(_interval(one, values, samples)[0] > chosen[one.name] for one in scores)
    return gains or all(values[one.name] >= _interval(one, chosen, samples)[0] for one in scores)


def _scores(objectives: Sequence[Objective], *members: Values) -> list[Objective]:
    """Return the accuracies on a domain's samples that all members have."""
    return [one for one in objectives if one.name in DOMAINS and all(one.name in member for member in members)]


def _interval(objective: Objective, values: Values, samples: Mapping[str, int]) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy; of another score a tenth of it on both sides."""
    share, count = values[objective.name], samples.get(DOMAINS[objective.name], 0)
    return wilson(share, count) if count and objective.unit == "%" else (0.9 * share, 1.1 * share)


def scaled_loss(objective: Objective, value: Values) -> float:
    """Return an objective's value with the sign that makes smaller better, seconds and bytes as logarithms."""
    number = value[objective.name]
    return math.log(max(number, 1e-9)) if objective.unit in COST_UNITS else objective.sign * number


def useful(members: Mapping[int, Values], untouched: Values, most_frequent: float) -> dict[int, Values]:
    """Return the members whose local accuracy is not below what comes free; all of them where none is above.

    The untouched model comes free, and so does whoever always answers with the most frequent class.
    """
    floor = max(untouched.get("local_accuracy", 0.0), most_frequent)
    kept = {trial: values for trial, values in members.items() if values.get("local_accuracy", math.inf) >= floor}
    return kept or dict(members)


def shortlist(
    members: Mapping[int, Values],
    objectives: Sequence[Objective],
    samples: Mapping[str, int],
    first: int | None,
    most: int = MOST,
) -> tuple[int, ...]:
    """Return at most so many members, ascending: of those that no difference tells apart, the one that comes first.

    Members are near-equal where their accuracies differ by less than the standard error of the validation set, and
    their other values by less than a tenth. Where too many are left, they are looked at more coarsely. `first` is kept
    in any case.
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


def _is_near(a: Values, b: Values, objectives: Sequence[Objective], samples: Mapping[str, int], coarse: float) -> bool:
    return all(
        abs(scaled_loss(one, a) - scaled_loss(one, b)) <= coarse * _tolerance(one, b, samples) for one in objectives
    )


def _tolerance(objective: Objective, values: Values, samples: Mapping[str, int]) -> float:
    count = samples.get(DOMAINS.get(objective.name, ""), 0)
    if count:
        share = values[objective.name]
        return math.sqrt(max(share * (1 - share), 0.25 / count) / count)  # of 0 % and 100 % too
    if objective.unit in COST_UNITS:
        return NEAR_COST
    return 0.1 * abs(values[objective.name])
