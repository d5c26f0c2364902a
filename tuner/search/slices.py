"""The slice of the samples that trials begin with: as many as the device has time to compute features of."""

import math
from collections.abc import Sequence

from tuner.plan.trial import TrialPlan
from tuner.search.fill.filling import Filler
from tuner.search.rungs import SAMPLES, at_rung

#: The least number of local samples in a slice of a device that is slower than it was measured.
LEAST_SAMPLES = 32
#: The lowest rung there may be.
MOST_RUNGS = 7


def prepare_slice(filler: Filler, plans: Sequence[TrialPlan], rung: int, within: float) -> int:
    """Fill the store for plans on a rung, or on a lower one whose samples there is time for; return that rung.

    A pass that is stopped shows how slow the device is. What it computed stays; the next slice is one that fits. The
    smallest one takes what it takes.

    Args:
        filler: Fills the store.
        plans: As they are on the top rung; the first plans first.
        rung: That they are to be tried on first; on the top rung they may take all the time.
        within: Seconds that a pass should take at most.

    Raises:
        BudgetError: A limit leaves nothing filled.
    """
    rungs = [rung, *smaller(plans[0], rung)] if rung else [0]
    while True:
        rung = rungs.pop(0)
        if filler.prepare((at_rung(plan, rung) for plan in plans), within if rungs else math.inf) or not rungs:
            return rung
        fitting = (at for at, lower in enumerate(rungs) if filler.fits(at_rung(plans[0], lower), within))
        rungs = rungs[next(fitting, -1) :]


def smaller(plan: TrialPlan, rung: int) -> list[int]:
    """Return the rungs below one that still have enough samples."""
    rungs = range(rung + 1, MOST_RUNGS + 1)
    return [lower for lower in rungs if plan.task.local_train * SAMPLES**lower >= LEAST_SAMPLES]
