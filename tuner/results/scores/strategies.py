"""The strategies that a study could combine: how often each was tried, what the best of it came to, what it adds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.results.records.trial import SCORED, TrialRecord, eligible
from tuner.results.scores.pareto import area

#: Why a strategy has no trial, and none was refused.
NEVER = "no plan has it: it found nothing to change here, or was not drawn"
#: Title of what the front would lose, and what a table of strategies says of it.
LOST = "front lost without it"
FRONT_LOST = (
    f"{LOST}: points of the area under the front (local × global) that would be lost without the "
    "strategy's trials; strategies are combined, so that rows do not add up"
)


@dataclass(frozen=True, slots=True)
class Tried:
    """All trials that a strategy changed the plan of.

    Attributes:
        name: Name of the strategy.
        tried: Number of trials that were scored.
        trial: The best of them by local accuracy, on the highest rung that it reached; None where none was scored.
        best: Its local accuracy.
        seconds: Wall time of all its trials, in which features may have been computed.
        adds: By how much the area under the front would shrink without its trials, between 0 and 1.
        reason: Why its last trial was not scored, or why there is none; empty where one was.
    """

    name: str
    tried: int
    trial: int | None
    best: float | None
    seconds: float
    adds: float
    reason: str = ""


def strategies_of(names: Iterable[str], records: Sequence[TrialRecord]) -> tuple[Tried, ...]:
    """Return what strategies came to that are in some plans and not in all, in the order of their names here."""
    own = [record for record in records if record.same_as is None]
    composed = [record for record in own if record.plan is not None]
    shared = {name for name in names if composed and all(name in record.strategies for record in composed)}
    return tuple(_tried(name, own) for name in names if name not in shared)


def has_area(records: Iterable[TrialRecord]) -> bool:
    """Return whether the front has an area: it has none without known classes, whose accuracy is one side of it."""
    return any("global_accuracy" in record.values for record in records)


def _tried(name: str, records: Sequence[TrialRecord]) -> Tried:
    mine = [record for record in records if name in record.strategies]
    scored = [record for record in mine if record.state in SCORED]
    best = min(scored, key=lambda one: (one.rung, -one.values.get("local_accuracy", 0.0), one.trial), default=None)
    top = min((record.rung for record in records if eligible(record)), default=0)
    front = [record for record in records if eligible(record) and record.rung == top]
    others = [record.values for record in front if name not in record.strategies]
    return Tried(
        name=name,
        tried=len(scored),
        trial=None if best is None else best.trial,
        best=None if best is None else best.values.get("local_accuracy"),
        seconds=sum(record.spent_seconds for record in mine),
        adds=area([record.values for record in front]) - area(others),
        reason="" if scored else _reason(name, mine, records),
    )


def _reason(name: str, mine: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> str:
    """Return why a strategy has no scored trial: that of its last trial, or of the last plan that it could not make."""
    begins = (f"strategy {name}:", f"strategy {name!r}:")
    refused = [record for record in records if record.plan is None and record.reason.startswith(begins)]
    return (mine or refused)[-1].reason if mine or refused else NEVER
