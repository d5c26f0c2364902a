"""The divergence of two answers."""

from functools import singledispatch

import torch
from torch.nn import functional

from tuner.plugin import LossInputs
from tuner.targets import MultiLabel, Regression, Targets


def divergence(batch: LossInputs, temperature: float) -> torch.Tensor:
    """Return T² · KL(teacher ‖ tail) over the outputs that the given model knew, float32 [n].

    With several labels a sample, an output is one Bernoulli, and the divergence is a mean over outputs. Of numbers
    it is the mean squared difference of the answers, which have no temperature.
    """
    logits: torch.Tensor = batch.logits
    if batch.known == 0:  # it knows nothing that could be kept
        return logits.sum(1) * 0
    return _apart(batch.targets, logits, batch.teacher, batch.known, temperature)


@singledispatch
def _apart(_: Targets, ours: torch.Tensor, theirs: torch.Tensor, known: int, temperature: float) -> torch.Tensor:
    ours, theirs = (functional.log_softmax(logits[:, :known] / temperature, 1) for logits in (ours, theirs))
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(1)


@_apart.register
def _of_several(
    _: MultiLabel, ours: torch.Tensor, theirs: torch.Tensor, known: int, temperature: float
) -> torch.Tensor:
    ours, theirs = ours[:, :known] / temperature, theirs[:, :known] / temperature
    share = torch.sigmoid(theirs)
    yes = functional.logsigmoid(theirs) - functional.logsigmoid(ours)
    no = functional.logsigmoid(-theirs) - functional.logsigmoid(-ours)
    return temperature**2 * (share * yes + (1 - share) * no).mean(1)


@_apart.register
def _of_numbers(_: Regression, ours: torch.Tensor, theirs: torch.Tensor, *_rest: float) -> torch.Tensor:
    return (ours - theirs).square().mean(1)
