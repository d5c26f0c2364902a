"""A training step as a backend plans it, in numbers, without a tensor library."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.planner.memory.placement import Tensor, max_live


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One training step of a plan, on a whole batch or in micro-batches.

    Attributes:
        tensors: Tensors in memory, without the weights, which are loaded whatever trains.
        steps: Names of the execution steps, which `tensors` count.
        flops: FLOPs of the whole batch; one multiply-accumulate counts two.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at once, above a process that holds libraries and weights."""
        return max_live(self.tensors)


@dataclass(frozen=True, slots=True)
class StepRun:
    """A program that a step runs, once or several times in a row.

    Attributes:
        tensors: Tensors in memory, weights included.
        steps: Names of the execution steps.
        flops: FLOPs of one run.
        times: Number of runs.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int
    times: int = 1


#: Kinds of tensors that stay from one program to the next.
LASTING = frozenset({"weight", "state", "library"})


def in_sequence(runs: Sequence[StepRun]) -> StepPlan:
    """Join programs that run one after the other on the same weights; one that runs several times is listed once.

    The last one has every lasting tensor that any of them has.
    """
    steps = tuple(name for run in runs for name in run.steps)
    end = len(steps) - 1
    lasting = [replace(tensor, first=0, last=end) for tensor in runs[-1].tensors if tensor.kind in LASTING]
    passing: list[Tensor] = []
    begin = 0
    for number, run in enumerate(runs, start=1):
        mark = "" if run is runs[-1] else f" ({number})"
        passing += [
            replace(tensor, name=f"{tensor.name}{mark}", first=tensor.first + begin, last=tensor.last + begin)
            for tensor in run.tensors
            if tensor.kind not in LASTING
        ]
        begin += len(run.steps)
    tensors = tuple(tensor for tensor in (*lasting, *passing) if tensor.kind != "weight")
    return StepPlan(tensors, steps, sum(run.times * run.flops for run in runs))
