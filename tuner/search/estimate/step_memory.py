"""The memory of a trial whose step a backend planned, before any trial."""

from typing import NamedTuple

from tuner.plan.trial import TrialPlan
from tuner.planner.data_terms import runs_prefix
from tuner.planner.device import Rates, unscaled_bytes
from tuner.planner.memory.step import LASTING, StepPlan
from tuner.planner.price import price

#: Tracing and compiling a planned step leaves so much in a trial's process, for each line of the step's program.
LINE_BYTES = 60_000


class StepBytes(NamedTuple):
    """What a backend's plan of a step says of its memory: most bytes alive at once, and those that last through all.

    Tracing and compiling the step leaves some more.
    """

    peak: int
    lasting: int
    traced: int

    @classmethod
    def of(cls, step: StepPlan) -> "StepBytes":
        """Return those of a step."""
        lasting = sum(tensor.nbytes for tensor in step.tensors if tensor.kind in LASTING)
        return cls(step.peak_bytes, lasting, LINE_BYTES * len(step.steps))


def expected_bytes(plan: TrialPlan, step: StepPlan, rates: Rates) -> int:
    """Return the peak bytes of a trial whose steps the planned executor runs, before any trial.

    The prefix takes memory too, before every step or while it fills the store.
    """
    training, rates = sum(planned_bytes(plan, StepBytes.of(step), rates)), rates.at(plan.size)
    return max(training, rates.fill_peak_bytes) if plan.cached else training


def planned_bytes(plan: TrialPlan, step: StepBytes, rates: Rates) -> tuple[int, int]:
    """Return the bytes of training in tensors, and those of all else, where the planner counted the step.

    A traced step's plan has the libraries' code and buffers already. Where the prefix runs before every step, what
    lasts stays in memory meanwhile. A tail that changes while it trains is run by the eager loop, and only its tensors
    are counted.
    """
    if not plan.traits.traceable:
        return step.peak + price(plan, rates).prefix_bytes, price(plan, rates).library_bytes
    rates = rates.at(plan.size)
    prefix = step.lasting + rates.fill_peak_bytes - unscaled_bytes(plan.model) if runs_prefix(plan) else 0
    return max(step.peak, prefix), rates.scratch_bytes + step.traced
