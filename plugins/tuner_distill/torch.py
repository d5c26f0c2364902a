"""The divergence of two answers."""

import torch
from torch.nn import functional

from tuner.plugin import LossInputs


def divergence(batch: LossInputs, temperature: float) -> torch.Tensor:
    """Return T² · KL(teacher ‖ tail) over the outputs that the given model knew, float32 [n].

    With several labels a sample, an output is one Bernoulli, and the divergence is a mean over outputs. Of numbers
    it is the mean squared difference of the answers, which have no temperature.
    """
    logits: torch.Tensor = batch.logits
    if batch.known == 0:  # it knows nothing that could be kept
        return logits.sum(1) * 0
    if not batch.targets.has_classes:
        teacher: torch.Tensor = batch.teacher
        return (logits - teacher).square().mean(1)
    ours, theirs = logits[:, : batch.known] / temperature, batch.teacher[:, : batch.known] / temperature
    if batch.targets.several:
        share = torch.sigmoid(theirs)
        yes = functional.logsigmoid(theirs) - functional.logsigmoid(ours)
        no = functional.logsigmoid(-theirs) - functional.logsigmoid(-ours)
        return temperature**2 * (share * yes + (1 - share) * no).mean(1)
    ours, theirs = functional.log_softmax(ours, 1), functional.log_softmax(theirs, 1)
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(1)
