"""A step's code, bound to the tensors that it reads and overwrites."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn

from tuner.backends.torch.step.traced import Step
from tuner.machine.process_memory import KEPT_BYTES, return_freed
from tuner.planner.memory.placement import Tensor

BoundStep = Callable[..., torch.Tensor]
#: Kinds of ports that live on from step to step, and the kind of tensor that a planner takes each for.
HELD = {"parameter": "weight", "buffer": "weight", "state": "state"}


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A step's code.

    Attributes:
        source: Python source; defines ``step``.
        code: The source, compiled.
        names: What the code refers to: operators and constants.
        batch: Names of the ports that every step takes anew, in the order of ``step``'s arguments.
        held: The code's name of every port that lives on, by the port's name.
        tensors: Every tensor and when it is alive, by lines in order. Views and results that take an operand's place
            have no entry of their own. Kinds: ``weight`` (buffers too), ``state``, ``input`` (all that a step takes
            anew), ``saved`` (for the backward pass), ``activation`` (not saved), ``again`` (computed again),
            ``gradient`` (of weights), ``derivative`` (of activations), ``scratch`` (of the library, while an operator
            runs), ``library`` (what it keeps: compiled code, its own buffers, freed memory), ``output`` (the loss).
        steps: What every line is for: an operator's node, or which weight is updated.
    """

    source: str
    code: CodeType
    names: Mapping[str, Any]
    batch: tuple[str, ...]
    held: Mapping[str, str]
    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]


def held_by(step: Step, tail: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a step holds of a tail: its own weights and buffers, and optimiser state of zeros, by port name."""
    own = {**dict(tail.named_parameters()), **dict(tail.named_buffers())}
    held = {}
    for port in step.inputs:
        if port.kind == "state":
            held[port.name] = torch.zeros_like(own[port.name.partition(".")[2]], requires_grad=False)
        elif port.kind in HELD:
            held[port.name] = own[port.name].detach()
    return held


def bound(program: Program, held: Mapping[str, torch.Tensor]) -> BoundStep:
    """Return the step as a function of its batch ports, in the order of `Program.batch`; it returns the loss.

    `held` are the tensors to read and overwrite, by port, laid out as they were traced. From here on the process gives
    freed memory back but for what the plan counts as ``freed``: without that it would exceed the planned peak.
    """
    return_freed(KEPT_BYTES)
    names = dict(program.names) | {name: held[port] for port, name in program.held.items()}
    exec(program.code, names)  # noqa: S102 - the source is made here, from operators' names
    run: BoundStep = names["step"]
    return torch.inference_mode()(run)
