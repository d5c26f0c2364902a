"""A traced step as code that runs in the planned order and stays at the planned peak.

The code is one function: an operator a line, `del` after the last use, results written over operands that die. What
the next step replaces (weights, running statistics, optimiser state) is overwritten where it lies, by a fused kernel or
piece by piece, so that an update needs no memory of its own. So the memory of a step is known before it runs:
`tensors_of`.
"""

from collections.abc import Sequence

from tuner.backends.torch.planned.bound_step import Program
from tuner.backends.torch.planned.library_memory import Library, nothing
from tuner.backends.torch.planned.schedule import schedule
from tuner.backends.torch.planned.writer import Writer
from tuner.backends.torch.step.traced import Step
from tuner.planner.memory.placement import Tensor


def program(step: Step, library: Library = nothing, *, again: bool = True) -> Program:
    """Turn a step into code.

    Args:
        step: Traced step.
        library: What the library takes for an operator; on this device
            `tuner.backends.torch.planned.library_memory.measured`.
        again: Whether activations that are cheap to compute again are dropped in between.

    Raises:
        StepError: The step's updates cannot run in place.
    """
    return Writer(schedule(step, again=again), library).write()


def tensors_of(step: Step, library: Library = nothing, *, again: bool = True) -> Sequence[Tensor]:
    """Return every tensor of a step's program and when it is alive; arguments as for `program`.

    Execution steps are the program's lines in order. Views and results that take an operand's place have no entry of
    their own. Kinds: ``weight`` (buffers too), ``state``, ``input`` (all that a step takes anew), ``saved`` (for the
    backward pass), ``activation`` (not saved), ``again`` (computed again), ``gradient`` (of weights), ``derivative``
    (of activations), ``scratch`` (of the library, while an operator runs), ``library`` (what it keeps: compiled code,
    its own buffers, freed memory), ``output`` (the loss).
    """
    return program(step, library, again=again).tensors
