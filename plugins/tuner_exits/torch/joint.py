"""A tail that trains together with the exits in it, so that it learns to answer early.

Source: Shallow-Deep Networks (Kaya et al., ICML 2019): the losses of all exits and of the final head add up.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from tuner.arrays import RowNumbers
from tuner.backends.torch.engines.eager import EagerSteps
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.graph.nodes import Chain
from tuner.backends.torch.step.losses import exit_loss
from tuner.backends.torch.task_loss import torch_loss
from tuner.backends.torch.trial.opened import OpenTask, TailTraining
from tuner.errors import TrainingError


class JointSteps(EagerSteps):
    """`EagerSteps` whose loss has those of the exits beyond the cut, times `HeadsPlan.joint`.

    Each exit learns what `exit_loss` says, of the final head's answers as they are at that step. Of a plan's heads,
    those beyond the cut train; the tail shares the chain's weights.
    """

    def __init__(self, chain: Chain, heads: nn.ModuleList, training: TailTraining) -> None:
        super().__init__(training)
        plan = training.plan
        pairs = zip(plan.heads.exits, heads, strict=True)
        deep = [(place.block, head) for place, head in pairs if place.block > plan.split]
        self._plan, self._exit_loss = plan.heads, torch_loss(training.task.targets)
        self._heads = nn.ModuleList(head for _, head in deep)
        ends = [chain.split_position(cut) for cut in (*(block for block, _ in deep), plan.model.num_blocks)]
        self._outputs = chain.outputs(ends, chain.split_position(plan.split))
        self._optimiser.add_param_group({"params": list(self._heads.parameters())})
        self.norms_train |= plan.heads.trains_norms
        self.notes = ("run by PyTorch's eager loop: exits in the tail train with it",)

    def begin_epoch(self) -> None:
        """Put the tail and the heads in training mode."""
        super().begin_epoch()
        self._heads.train()

    def _part_loss(self, features: torch.Tensor, labels: torch.Tensor, rows: RowNumbers) -> torch.Tensor:
        *values, logits = self._outputs(features)
        answers = logits.detach()
        losses = [
            exit_loss(head(spatial(value)), answers, labels, self._plan, self._exit_loss)
            for value, head in zip(values, self._heads, strict=True)
        ]
        return self._tail_loss(logits, features, labels, rows) + self._plan.joint * torch.stack(losses).sum()


def with_exits(opened: OpenTask, heads: nn.ModuleList) -> OpenTask:
    """Return a task whose tails train together with a plan's heads in them."""
    chain = opened.model.chain
    if chain is None:
        raise TrainingError("a model without cut points has no place for exits: leave exits out")
    return replace(opened, steps=partial(JointSteps, chain, heads))
