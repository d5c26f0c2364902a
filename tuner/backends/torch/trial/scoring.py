"""Scores and sizes of a trained tail."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.arrays import Floats, Labels
from tuner.backends.measuring import Answers
from tuner.backends.torch.model.graph.blocks import counted
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.open.load import OpenModel
from tuner.backends.torch.trial.inputs import TailInputs
from tuner.errors import TrainingError
from tuner.planner.device import FLOAT_BYTES
from tuner.results.records.baseline import packed
from tuner.results.records.counts import ClassCounts
from tuner.targets.base import LEFT_OUT
from tuner.task import Task
from tuner.training.schedule import batches_of

SCORE_BATCH = 32


def sizes(
    model: OpenModel, cut: int, tail: nn.Module, example: torch.Tensor, int8_bytes: int | None = None
) -> dict[str, float]:
    """Return the whole model's parameters, a prediction's FLOPs and the size of a bundle, the tail's as it is now.

    `int8_bytes` is the size of the frozen blocks in int8; None where they are in float32. FLOPs are the mean over the
    samples of `example`, which a tail may treat differently.
    """
    tail.eval()
    flops = counted(tail, example)[0] // len(example)
    frozen = model.info.blocks[:cut]
    parameters = sum(value.numel() for value in tail.parameters()) + sum(block.parameters for block in frozen)
    if int8_bytes is None:
        nbytes = bundle_bytes([model.prefix(cut), tail], [model.model])
    else:
        nbytes = bundle_bytes([tail], [tail], int8_bytes)
    return {"parameters": parameters, "flops": flops + sum(block.flops for block in frozen), "bundle_bytes": nbytes}


def bundle_bytes(written: Sequence[nn.Module], saved: Sequence[nn.Module], int8_bytes: int = 0) -> float:
    """Return about how many bytes the bundle takes that an export writes without what it trains again from.

    The graph's nodes and the descriptions are left out: tens of kB.

    Args:
        written: What it holds as ONNX in float32; there a batch norm becomes the bias of the layer before it.
        saved: What its files of weights hold.
        int8_bytes: Size of what it holds in int8.
    """
    layers = [layer for module in written for layer in module.modules()]
    norms = [layer for layer in layers if isinstance(layer, _BatchNorm) and layer.running_mean is not None]
    folded = sum(_state_bytes(norm) - norm.num_features * FLOAT_BYTES for norm in norms)
    return float(int8_bytes + sum(map(_state_bytes, (*written, *saved))) - folded)


def _state_bytes(module: nn.Module) -> int:
    return sum(value.numel() * value.element_size() for value in module.state_dict().values())


def score(task: Task, tail: nn.Module, inputs: TailInputs) -> float:
    """Return the score over all outputs of the union head."""
    return task.targets.score(logits(tail, inputs), inputs.labels)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a trial so far.

    Attributes:
        values: By their names.
        classes: Predictions counted by class, by domain, where each sample has one class of the user's.
        right: Which local samples were right, likewise; see `Outcome`.
        answers: What was scored, by domain.
    """

    values: dict[str, float] = field(default_factory=dict)
    classes: dict[str, ClassCounts] = field(default_factory=dict)
    right: list[str] = field(default_factory=list)
    answers: dict[str, Answers] = field(default_factory=dict)

    def add(self, task: Task, domain: str, outputs: Floats, labels: Labels) -> None:
        """Score the outputs, float32 [n, outputs], of a domain's samples."""
        self.values.update(task.targets.scores(domain, outputs, labels, labelled=task.labelled))
        self.answers[domain] = Answers(outputs, labels, task.targets, task.labels)
        hits = task.targets.hits(outputs, labels) if task.labelled else None
        if hits is not None:
            self.classes[domain] = ClassCounts.of(outputs.argmax(axis=1), labels)
            self.right.extend([packed(hits)] if domain == "local" else [])

    def add_left_out(self, task: Task, outputs: Floats, labels: Labels, left_out: Floats, left_labels: Labels) -> None:
        """Score a solved head on all local samples: those for validation, and those it was solved from, left out."""
        both, truth = np.concatenate([outputs, left_out]), np.concatenate([labels, left_labels])
        self.values.update(task.targets.scores(LEFT_OUT, both, truth, labelled=task.labelled))


def logits(tail: nn.Module, inputs: TailInputs) -> Floats:
    """Return float32 [n, outputs] in evaluation mode.

    Raises:
        TrainingError: Some are not finite.
    """
    tail.eval()
    batches = batches_of(np.arange(len(inputs.labels)), SCORE_BATCH)
    with torch.inference_mode():
        outputs = np.concatenate([tail(spatial(inputs.read(rows))).numpy() for rows in batches])
    require_finite("the tail", outputs)
    return outputs


def require_finite(whose: str, outputs: Floats) -> None:
    """Refuse logits float32 [..., n, outputs] that are no numbers: the class they would choose says nothing."""
    broken = ~np.isfinite(outputs).all(axis=-1)
    if broken.any():
        samples = int(broken.reshape(-1, broken.shape[-1]).any(axis=0).sum())
        raise TrainingError(
            f"{whose} must give finite logits in evaluation mode, but for {samples} of {broken.shape[-1]} samples some "
            "are not, so that there is no score: check the model and the plan's tail edits, or lower "
            "recipe.learning_rate"
        )
