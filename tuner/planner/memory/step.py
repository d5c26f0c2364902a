"""A training step as a backend plans it, in numbers, without a tensor library."""

from dataclasses import dataclass

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


#: Kinds of tensors that stay from one program to the next.
LASTING = frozenset({"weight", "state", "library"})
