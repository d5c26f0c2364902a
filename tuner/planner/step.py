"""A training step as a backend plans it, in numbers that need no tensor library."""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.planner.lifetimes import Tensor
from tuner.planner.placement import max_live


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One training step of a plan, batch or micro-batches.

    Attributes:
        tensors: What it has in memory beside the weights, which are loaded whatever trains.
        steps: What runs, in order; the execution steps of `tensors` count these.
        flops: Of the whole batch; one multiply-accumulate counts two.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once, above a process that holds libraries and weights."""
        return max_live(self.tensors)


@dataclass(frozen=True, slots=True)
class Run:
    """A program that a step runs: once, or several times in a row.

    Attributes:
        tensors: As `tuner.backends.torch.planned.tensors_of` has them.
        steps: What runs, in order.
        flops: Of one run.
        times: How often it runs.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int
    times: int = 1


#: What stays from one program to the next, by kind.
LASTING = frozenset({"weight", "state", "library"})


def in_a_row(runs: Sequence[Run]) -> StepPlan:
    """Join programs that run one after the other on the same weights; what runs several times is drawn once.

    Args:
        runs: The last one holds all that any of them holds.
    """
    steps = tuple(name for run in runs for name in run.steps)
    last = len(steps) - 1
    kept = [Tensor(one.name, one.nbytes, 0, last, one.kind) for one in runs[-1].tensors if one.kind in LASTING]
    passing, begin = [], 0
    for index, run in enumerate(runs):
        mark = "" if run is runs[-1] else f" ({index + 1})"
        passing += [
            Tensor(f"{one.name}{mark}", one.nbytes, one.first + begin, one.last + begin, one.kind)
            for one in run.tensors
            if one.kind not in LASTING
        ]
        begin += len(run.steps)
    tensors = tuple(one for one in (*kept, *passing) if one.kind != "weight")
    return StepPlan(tensors, steps, sum(run.times * run.flops for run in runs))
