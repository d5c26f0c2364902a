"""The cuts that a run tried: how many blocks train, what the best of each came to, and what it took."""

from collections.abc import Iterable
from dataclasses import dataclass

from tuner.plan.text import SOLVED
from tuner.results.records.trial import SCORED, TrialRecord
from tuner.results.scores.objectives import LEFT_OUT_ACCURACY


@dataclass(frozen=True, slots=True)
class Cut:
    """All trials that train the same number of last blocks.

    Attributes:
        blocks: Number of last blocks that train; 0 for heads that are solved for, of which nothing trains before, and
            where `exits` alone train.
        of: Number of the model's blocks.
        tried: Number of trials that were scored.
        trial: The best of them by local accuracy, of heads alone by leave-one-out, on the highest rung that the cut
            reached; None where none was scored.
        seconds: Wall time of all its trials, in which features may have been computed.
        reason: Why its last trial was not scored; empty where one was.
    """

    blocks: int
    of: int
    tried: int
    trial: int | None
    local_accuracy: float | None
    global_accuracy: float | None
    seconds: float
    reason: str = ""
    exits: bool = False

    @property
    def name(self) -> str:
        """What trains, for people."""
        if self.exits:
            return "none (early exits alone)"
        if not self.blocks:
            return SOLVED.removeprefix("the ")
        if self.blocks == self.of:
            return "the whole model"
        return f"last of {self.of} blocks" if self.blocks == 1 else f"last {self.blocks} of {self.of} blocks"


def cuts_of(records: Iterable[TrialRecord]) -> tuple[Cut, ...]:
    """Return the cuts that some trials have: exits alone, then from the head on."""
    groups: dict[tuple[int, bool], list[TrialRecord]] = {}
    for record in records:
        if (plan := record.plan) is not None and record.same_as is None:
            cut = 0 if plan.traits.solves else plan.trainable
            groups.setdefault((cut, not plan.trainable and bool(plan.heads.exits)), []).append(record)
    return tuple(_cut(*key, groups[key]) for key in sorted(groups, key=lambda key: (not key[1], key[0])))


def _cut(blocks: int, exits: bool, records: list[TrialRecord]) -> Cut:
    scored = [record for record in records if record.state in SCORED]
    name = LEFT_OUT_ACCURACY.name  # among heads alone, the score on all local samples decides
    if blocks or not all(name in record.values for record in scored):
        name = "local_accuracy"
    best = min(scored, key=lambda one: (one.rung, -one.values.get(name, 0.0), one.trial), default=None)
    values = {} if best is None else best.values
    of = max(record.plan.model.num_blocks for record in records if record.plan is not None)
    return Cut(
        blocks=blocks,
        of=of,
        tried=len(scored),
        trial=None if best is None else best.trial,
        local_accuracy=values.get("local_accuracy"),
        global_accuracy=values.get("global_accuracy"),
        seconds=sum(record.spent_seconds for record in records),
        reason="" if scored else records[-1].reason,
        exits=exits,
    )
