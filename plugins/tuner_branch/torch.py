"""The two tails and the gate between them, as PyTorch's modules."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tuner.arrays import Array, Doubles, Flags, Floats
from tuner.plugin import Completing, Tail, TrainingSamples, UnsupportedError
from tuner.plugin.ridge import MOST_FEATURES, Domain, LinearHead, UnionSettings, coded, gate_head, step_of

#: Ridge penalties, in samples, that the gate's is chosen from.
PENALTIES = (1.0, 10.0, 100.0, 1000.0)


class Pooled(nn.Module):
    """The mean of each feature over positions: [n, C, ...], or [n, ..., C] with channels last, to [n, C]."""

    def __init__(self, *, channels_last: bool) -> None:
        super().__init__()
        self._last = channels_last

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return float32 [n, C]."""
        if value.ndim == 2:  # noqa: PLR2004 - vectors
            return value
        return value.flatten(1, -2).mean(1) if self._last else value.flatten(2).mean(2)


class BranchedTail(nn.Module, Completing):
    """The given tail, one that trains, and a gate that sends each sample through one of them.

    In training mode, and until it is completed, it is the tail that trains. Afterwards each tail computes only the
    samples that are sent through it, of a batch possibly none: as ONNX too, without a graph inside the graph.

    Args:
        tail: The tail; what earlier edits made of it trains.

    Raises:
        UnsupportedError: The tail's input has too many features for a gate.
    """

    def __init__(self, tail: Tail) -> None:
        super().__init__()
        block = tail.plan.model.blocks[tail.plan.split]
        channels = block.in_shape[-1 if block.channels_last else 0]
        if channels > MOST_FEATURES:
            raise UnsupportedError(
                f"a gate takes at most {MOST_FEATURES} features, but the input of this tail has {channels}: cut "
                "elsewhere, or set branch.use to false"
            )
        self.own, self.given = tail.module, tail.given().requires_grad_(requires_grad=False)
        self.pooled, self.gate = Pooled(channels_last=block.channels_last), nn.Linear(channels, 1)
        self.gate.requires_grad_(requires_grad=False)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self._is_complete = False
        self.register_load_state_dict_post_hook(_follow_gate)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    @property
    def trained(self) -> Any:
        """The tail that trains."""
        return self.own

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        if self.training or not self._is_complete:
            logits: torch.Tensor = self.own(value)
            return logits
        is_own = self.gate(self.pooled(value))[:, 0] > 0
        if self.is_traced:
            return torch.where(is_own[:, None], self.own(value), self.given(value))
        ours, theirs = torch.nonzero(is_own)[:, 0], torch.nonzero(~is_own)[:, 0]
        if torch.compiler.is_exporting():  # kernels ask; a file of ONNX takes none as well
            for rows in (ours, theirs):
                torch._check(rows.shape[0] != 0)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch's documented way
        own, given = self.own(value[ours]), self.given(value[theirs])
        empty = own.new_zeros(value.shape[0], own.shape[1])
        answers: torch.Tensor = empty.index_copy(0, ours, own).index_copy(0, theirs, given)
        return answers

    def complete(self, samples: TrainingSamples) -> tuple[str, ...]:
        """Solve for the gate, and set its threshold.

        What the trained tail answers to global samples that it has learned says nothing: there it counts as wrong.
        """
        self._is_complete = False
        is_local, targets = samples.is_local, samples.targets
        own, given = (targets.correctness(samples.run(one), samples.labels) for one in (self.own, self.given))
        gains = np.where(is_local, own, 0.0) - given
        gains /= np.where(is_local, is_local.sum(), (~is_local).sum())
        if is_local.all():  # nothing is known of old samples
            return ("no global samples were mixed in: the trained tail answers alone",)
        gates = _gates(samples.run(self.pooled), is_local)
        chosen = [(*best_threshold(scores, gains), head, scores) for head, scores in gates]
        _, threshold, head, scores = max(chosen, key=lambda one: one[0])
        self._set(head, threshold)
        local, known = ((scores > threshold)[rows].mean() for rows in (is_local, ~is_local))
        sent = f"{local:.1%} of the local ones and {known:.1%} of the global ones take the trained tail"
        return (f"branch: of samples left out, {sent}",)

    def _set(self, head: LinearHead, threshold: float) -> None:
        self.gate.weight.copy_(torch.from_numpy(head.weight.astype(np.float32))[None])
        self.gate.bias.fill_(head.bias.item() - threshold)
        self._is_complete = True


def _gates(features: Floats, is_local: Flags) -> Iterator[tuple[LinearHead, Doubles]]:
    """Yield the gate with each penalty, and its scores of all samples, float64 [n], each by the gate without it."""
    step = step_of(features)
    local, known = (
        Domain.empty(features.shape[1], 1, step).added(coded(features[rows], step), np.zeros(rows.sum(), np.int64))
        for rows in (is_local, ~is_local)
    )
    for penalty in PENALTIES:
        head, *left = gate_head(local, known, UnionSettings(gate_ridge=penalty))
        scores = np.empty(len(is_local))
        scores[is_local], scores[~is_local] = left
        if head is not None:
            yield head, scores


def best_threshold(scores: Array, gains: Array) -> tuple[float, float]:
    """Return the largest sum of gains of the samples whose score is above a threshold, and that threshold.

    Args:
        scores: float [n].
        gains: What it brings that a sample is above the threshold, float [n].
    """
    order = np.argsort(scores, kind="stable")
    ascending: Doubles = scores[order].astype(np.float64)
    above = np.concatenate([np.cumsum(gains[order][::-1])[::-1], [0.0]])  # of the samples from a place on
    places = int(np.argmax(above))
    edges = np.concatenate([ascending[:1] - 1.0, (ascending[1:] + ascending[:-1]) / 2, ascending[-1:] + 1.0])
    return float(above[places]), float(edges[places])


def _follow_gate(tail: nn.Module, _incompatible: object) -> None:
    """Let a loaded tail be complete if its gate is; that of one which still trains is zero."""
    if isinstance(tail, BranchedTail):
        tail._is_complete = bool(tail.gate.weight.any() or tail.gate.bias.any())  # noqa: SLF001 - its own hook
