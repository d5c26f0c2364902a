"""By which values trials are compared: those of one rung, and as far as leave-one-out tells, of all local samples."""

from collections.abc import Iterable, Mapping

from tuner.results.records.baseline import discordant
from tuner.results.records.trial import TrialRecord, eligible, plan_of
from tuner.targets.base import ACCURACY, LEFT_OUT

LOCAL, LEFT_OUT_LOCAL = "local" + ACCURACY, LEFT_OUT + ACCURACY


def comparable(records: Iterable[TrialRecord]) -> dict[int, Mapping[str, float]]:
    """Return the values of the trials that may be on the front: of those within every limit, the highest rung's.

    Scores of different rungs are of different samples: they are never compared. One trial alone on the final rung is
    compared with nothing: then the rung below counts. A head that is solved for counts with
    all local samples: those that judge it, and those that it learned, each left out. How much easier the judging ones
    are is thereby known, and what a training owes to that is taken off its local accuracy: the regression estimator
    (Cochran, "Sampling techniques", chapter 7). Of equal ones the one with the lower loss counts for more, by less than
    half a sample.
    """
    within = [record for record in records if eligible(record)]
    finals = [record for record in within if record.rung < 0]
    within = [record for record in within if record.rung >= 0] if len(finals) == 1 else within
    top = min((record.rung for record in within), default=0)
    here = [record for record in within if record.rung == top]
    heads = [one for one in here if LEFT_OUT_LOCAL in one.values and one.plan is not None and one.right]
    yardstick = max(heads, key=lambda one: one.values[LEFT_OUT_LOCAL], default=None)
    return {record.trial: _compared(record, yardstick) for record in here}


def _compared(record: TrialRecord, yardstick: TrialRecord | None) -> Mapping[str, float]:
    """Return a trial's values, with what its loss and the yardstick say in the local accuracy."""
    accuracy, loss = record.values.get(LOCAL), record.values.get("local_loss")
    if accuracy is None or record.plan is None:
        return record.values
    if LEFT_OUT_LOCAL in record.values:
        accuracy = record.values[LEFT_OUT_LOCAL]
    elif yardstick is not None:
        easier = yardstick.values[LOCAL] - yardstick.values[LEFT_OUT_LOCAL]
        accuracy = min(1.0, max(0.0, accuracy - _slope(record, yardstick) * easier))
    half = 0.0 if loss is None else 0.5 / max(1, record.plan.local_scored)
    return {**record.values, LOCAL: accuracy - half * (loss or 0.0) / (1 + (loss or 0.0))}


def _slope(record: TrialRecord, head: TrialRecord) -> float:
    """Return by how much a trial's accuracy rises with a head's, from 0 to 1, by the samples that judge both."""
    count, own, other = plan_of(record).local_scored, record.values[LOCAL], head.values[LOCAL]
    spread = other * (1 - other)
    if not record.right or not count or spread <= 0 or plan_of(head).local_scored != count:
        return 0.0
    try:
        apart = sum(discordant(record.right, head.right))
    except ValueError:  # they judge other samples
        return 0.0
    both = (own + other - apart / count) / 2
    return min(1.0, max(0.0, (both - own * other) / spread))
