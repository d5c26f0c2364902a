"""The check of a written training step: it trains next to PyTorch's own modules."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tuner.arrays import Floats, Labels
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.step.optimiser import clip_gradients, optimiser
from tuner.backends.torch.step.prepare import prepared
from tuner.backends.torch.step.substitutes import Feed, substituted
from tuner.backends.torch.step.traced import StepError
from tuner.backends.torch.task_loss import MeanLoss
from tuner.errors import BundleError
from tuner.ort.training_step import StepSession
from tuner.plan.parts import RecipePlan
from tuner.targets import Targets

TOLERANCE = 1e-4
#: How many times as far as PyTorch's own float32 a step may stray from double precision.
STRAYS = 2.0
#: Steps and learning rate of the check: where rounding still shows less than a wrong formula would. At 1e-4, twelve
#: blocks of MobileNetV2 stray by 4e-4 in five steps of AdamW, at 3e-5 by 4e-6.
STEPS: Mapping[str, tuple[int, float]] = {"sgd": (20, 2e-3), "adam": (5, 3e-5), "adamw": (5, 3e-5)}


def unwritable(error: StepError) -> BundleError:
    """Return why a step cannot be exported."""
    return BundleError(f"{str(error).rpartition(': ')[0]}, so --trainable cannot write it: export without --trainable")


def random_labels(recipe: RecipePlan, outputs: int, kind: Targets) -> list[Labels]:
    """Return labels for each step of the check: those of samples that a tail has learned leave losses too small."""
    generator, (steps, _), count = np.random.default_rng(1), STEPS[recipe.optimiser], recipe.batch_size
    return [kind.random(generator, count, outputs) for _ in range(steps)]


def compare_training(
    tail: nn.Module,
    recipe: RecipePlan,
    path: Path,
    features: Floats,
    labels: Sequence[Labels],
    loss: MeanLoss,
    threads: int,
    weights: nn.Module | None = None,
) -> float:
    """Train the written step and PyTorch's modules alike; return the largest relative difference of losses.

    Where a value near a kink, such as ReLU6 has two of, falls to one side here and to the other side there, the two
    drift apart, and neither is wrong. So where they do, both are compared with PyTorch in double precision.

    Args:
        tail: What the step was traced from.
        recipe: Likewise.
        path: File of the step.
        features: Some inputs of the tail.
        labels: Labels of each step.
        loss: The mean over a batch, of logits and labels.
        threads: ONNX Runtime's threads within an operator.
        weights: Module that has the tail's weights by the names of the step; the tail itself where not given.

    Raises:
        BundleError: The step trains other than PyTorch, and strays further from double precision than that does.
    """
    rate, batch = STEPS[recipe.optimiser][1], features[np.resize(np.arange(len(features)), recipe.batch_size)]
    state = {name: value.numpy(force=True) for name, value in (weights or tail).state_dict().items()}
    session = StepSession(path, state, threads, seed=0)
    noises = [port.shape for port in session.layout.inputs if port.kind == "noise"]
    recipe = replace(recipe, learning_rate=rate)

    def trained(batch: torch.Tensor) -> list[float]:
        """Return the losses of a copy of the tail, which PyTorch trains in the precision of the batch."""
        noise, feed, losses = np.random.default_rng(0), Feed(), []
        model = prepared(copy.deepcopy(tail).to(batch.dtype), recipe, feed, padded=False)
        updates = optimiser([value for value in model.parameters() if value.requires_grad], recipe)
        for step_labels in labels:
            feed.noise = [torch.from_numpy(noise.random(shape, np.float32)).to(batch.dtype) for shape in noises]
            updates.zero_grad(set_to_none=True)
            target = torch.from_numpy(step_labels)
            with substituted(feed):
                logits = model(spatial(batch))
            mean = loss(logits, target.to(batch.dtype) if target.is_floating_point() else target)
            mean.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            clip_gradients(model.parameters(), recipe)
            updates.step()
            losses.append(float(mean.detach()))
        return losses

    ours, theirs = [session.step(batch, one, rate) for one in labels], trained(torch.from_numpy(batch))
    difference = _apart(ours, theirs)
    if not difference <= TOLERANCE:
        exact = trained(torch.from_numpy(batch).double())
        strayed, allowed = _apart(ours, exact), max(TOLERANCE, STRAYS * _apart(theirs, exact))
        if not strayed <= allowed:
            raise BundleError(
                f"the exported step is not exact enough: its losses differ by {difference:.2g} from PyTorch's, and by "
                f"{strayed:.2g} from those in double precision, where {allowed:.2g} is allowed: "
                "export without --trainable"
            )
    return difference


def _apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest relative difference; NaN where there is one."""
    return float(np.max(np.abs(np.subtract(losses, others)) / np.abs(others)))
