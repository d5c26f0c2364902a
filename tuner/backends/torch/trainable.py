"""Write what a bundle needs to train again without PyTorch, and check it by training it beside PyTorch.

Into ``train/`` go the traced step, the tail's inference, the plan's global samples as stored features (mixed in, as
training on new samples alone forgets), and other global samples that say what was forgotten. Of the user's own samples
nothing is written but the range of each feature channel.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from tuner.backends.torch.features import VALIDATION_BITS
from tuner.backends.torch.lower import write
from tuner.backends.torch.picks import Pick, every, training
from tuner.backends.torch.prefix import spatial
from tuner.backends.torch.standins import Feed
from tuner.backends.torch.step import StepError, prepared, trace, trace_inference
from tuner.backends.torch.training import optimiser
from tuner.errors import BundleError
from tuner.plan import RecipePlan, TrialPlan
from tuner.planner.cost import CODED_BITS
from tuner.runtime.bundle import MODEL
from tuner.runtime.records import Records
from tuner.runtime.session import Session
from tuner.runtime.step import StepSession
from tuner.runtime.trainer import CHECK, REPLAY, STEP, TAIL, TRAIN_FORMAT
from tuner.store.codec import Codec, calibrate
from tuner.task import Samples, Task, normalise

CHECK_SAMPLES = 500
CALIBRATION_SAMPLES = 256  # of each domain
BATCH = 32
CLIPPED = 0.01
TOLERANCE = 1e-4
#: How many times as far as PyTorch's own float32 a step may stray from double precision.
STRAYS = 2.0
#: Steps and learning rate of the check: where rounding still shows less than a wrong formula would.
STEPS: Mapping[str, tuple[int, float]] = {"sgd": (20, 2e-3), "adam": (5, 1e-4), "adamw": (5, 1e-4)}
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[Any]
MeanLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
LOSSES: Mapping[str, MeanLoss] = {
    "single-label": functional.cross_entropy,
    "multi-label": functional.binary_cross_entropy_with_logits,
}


def refuse_untrainable(tail: nn.Module, state: Mapping[str, Any], plan: TrialPlan) -> None:
    """Refuse, before anything is written, a tail whose weights cannot be told in the whole model's.

    Raises:
        BundleError: It is one.
    """
    strange = [name for name in tail.state_dict() if name not in state]
    if plan.shape or strange:
        why = f"the tail edit {plan.shape[0].kind}" if plan.shape else f"a weight {strange[0]} beside the model's own"
        raise BundleError(f"--trainable writes the model's own tail, but this one has {why}: export without it")


def write_trainable(task: Task, plan: TrialPlan, tail: nn.Module, folder: Path) -> dict[str, Any]:
    """Write ``train/`` beside a model that was exported for it; see `tuner.backends.torch.export.export`.

    Returns:
        What ``bundle.json`` says of it.

    Raises:
        BundleError: The step cannot be written, or trains other than PyTorch.
    """
    (folder / "train").mkdir(mode=0o700)
    session = Session(folder / MODEL, plan.runtime.threads)
    features = Features(task, plan, session.features if plan.split else lambda pixels: pixels)
    records = features.codes([one for one in training(task, plan) if one.split == "global.train"], features.codec())
    records.save(folder / REPLAY)
    known = [some(every(task, "global.val"), CHECK_SAMPLES)] if task.global_ is not None else []
    features.codes(known, Codec(VALIDATION_BITS, records.codec.shape)).save(folder / CHECK)
    shape, outputs = records.codec.shape, len(task.labels)
    try:
        step = trace(
            tail, plan.recipe, loss=task.loss, input_shape=shape, outputs=outputs, batch_size=plan.recipe.batch_size
        )
        write(step, folder / STEP)
        write(trace_inference(tail, input_shape=shape, outputs=outputs, batch_size=BATCH), folder / TAIL)
    except StepError as error:
        reason = str(error).rpartition(": ")[0]
        raise BundleError(f"{reason}, so --trainable cannot write it: export without --trainable") from error
    rows, loss = some(every(task, "local.train"), plan.recipe.batch_size), LOSSES[task.loss]
    labels = drawn(plan.recipe, outputs, several=task.loss == "multi-label")
    difference = compared(tail, plan.recipe, folder / STEP, features.of(rows), labels, loss, plan.runtime.threads)
    return {
        "format": TRAIN_FORMAT,
        "weights": list(tail.state_dict()),
        "split": plan.split,
        "batch_size": plan.recipe.batch_size,
        "replay_samples": len(records),
        "check_samples": sum(map(len, known)),
        "bits": records.codec.bits,
        "bytes": sum(path.stat().st_size for path in (folder / "train").iterdir()),
        "largest_loss_difference": difference,
    }


class Features:
    """What the exported model's frozen blocks make of a task's samples.

    Args:
        task: Its samples.
        plan: Where the tail begins, and in how many bits its features are kept.
        carry: The frozen blocks: takes inputs, returns features.
    """

    def __init__(self, task: Task, plan: TrialPlan, carry: Callable[[Floats], Floats]) -> None:
        self._task, self._plan, self._carry = task, plan, carry

    def batches(self, pick: Pick) -> Iterator[Floats]:
        """Yield float32 [n, *shape], a few samples at a time."""
        for begin in range(0, len(pick), BATCH):
            raw = [pick.samples.load(int(index)) for index in pick.indices[begin : begin + BATCH]]
            yield self._carry(normalise(np.stack(raw), self._task.input))

    def of(self, pick: Pick) -> Floats:
        """Return float32 [n, *shape]."""
        return np.concatenate(list(self.batches(pick)))

    def codec(self) -> Codec:
        """Return how features are kept: in the plan's width, in 8 bits where the plan keeps none.

        The scales are per channel, of local and global training samples as in a study. Inputs are not clipped: 8 bits
        hold the pixels of an image as they are.
        """
        bits = self._plan.cache.bits if self._plan.cached else CODED_BITS
        picks = [some(every(self._task, "local.train"), CALIBRATION_SAMPLES)]
        if self._task.global_ is not None:
            picks.append(some(every(self._task, "global.train"), CALIBRATION_SAMPLES))
        maps = np.concatenate([batch for pick in picks for batch in self.batches(pick)])
        scales = calibrate(maps, CLIPPED if self._plan.split else 0.0) if bits < VALIDATION_BITS else (None, None)
        return Codec(bits, maps.shape[1:], *scales)

    def codes(self, picks: list[Pick], codec: Codec) -> Records:
        """Return the samples of some picks as records."""
        codes = [codec.encode(batch) for pick in picks for batch in self.batches(pick)]
        kind: Samples = self._task.local.train  # gives labels of the right kind where there are no samples
        labels = np.concatenate([kind.labels[:0], *(pick.labels() for pick in picks)])
        return Records(codec, np.concatenate([np.empty((0, codec.record_bytes), np.uint8), *codes]), labels)


def some(pick: Pick, count: int) -> Pick:
    """Return at most `count` samples of a pick, drawn with a seed."""
    chosen = np.sort(np.random.default_rng(0).permutation(len(pick))[:count])
    return Pick(pick.split, pick.samples, pick.indices[chosen])


def drawn(recipe: RecipePlan, outputs: int, *, several: bool) -> list[Labels]:
    """Return labels for each step of the check: those of samples that a tail has learned leave losses too small.

    Args:
        recipe: Its optimiser and batch size.
        outputs: Of the tail.
        several: Whether a sample may have several labels.
    """
    generator, (steps, _), count = np.random.default_rng(1), STEPS[recipe.optimiser], recipe.batch_size
    if several:
        return [generator.integers(0, 2, (count, outputs)).astype(np.float32) for _ in range(steps)]
    return [generator.integers(0, outputs, count) for _ in range(steps)]


def compared(
    tail: nn.Module,
    recipe: RecipePlan,
    path: Path,
    features: Floats,
    labels: Sequence[Labels],
    loss: MeanLoss,
    threads: int,
) -> float:
    """Train the written step and PyTorch's modules alike; return the largest relative difference of losses.

    Where a value near a kink, such as ReLU6 has two of, falls to one side here and to the other side there, the two
    drift apart, and neither is wrong. So where they do, both are held against PyTorch in double precision.

    Args:
        tail: That the step was traced from.
        recipe: Likewise.
        path: Of the step.
        features: Some inputs of the tail.
        labels: Of each step.
        loss: The mean over a batch, of logits and labels.
        threads: Of ONNX Runtime, within an operator.

    Raises:
        BundleError: The step trains other than PyTorch, and strays further from double precision than that does.
    """
    rate, batch = STEPS[recipe.optimiser][1], features[np.resize(np.arange(len(features)), recipe.batch_size)]
    state = {name: value.numpy(force=True) for name, value in tail.state_dict().items()}
    session = StepSession(path, state, threads, seed=0)
    noises = [port.shape for port in session.layout.inputs if port.kind == "noise"]
    ours = [session.step(batch, one, rate) for one in labels]
    recipe = replace(recipe, learning_rate=rate)
    theirs = _trained(tail, recipe, torch.from_numpy(batch), labels, loss, noises)
    difference = _apart(ours, theirs)
    if not difference <= TOLERANCE:
        exact = _trained(tail.double(), recipe, torch.from_numpy(batch).double(), labels, loss, noises)
        tail.float()
        strayed, allowed = _apart(ours, exact), max(TOLERANCE, STRAYS * _apart(theirs, exact))
        if not strayed <= allowed:
            raise BundleError(
                f"the exported step's losses differ by {difference:.2g} from PyTorch's and by {strayed:.2g} from those "
                f"in double precision, more than {allowed:.2g}: export without --trainable"
            )
    return difference


def _apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest relative difference; NaN where there is one."""
    return float(np.max(np.abs(np.subtract(losses, others)) / np.abs(others)))


def _trained(
    tail: nn.Module,
    recipe: RecipePlan,
    batch: torch.Tensor,
    labels: Sequence[Labels],
    loss: MeanLoss,
    noises: Sequence[tuple[int, ...]],
) -> list[float]:
    """Train a copy of a tail with PyTorch in the precision of its batch; return the losses."""
    noise, feed, losses = np.random.default_rng(0), Feed(), []
    model = prepared(copy.deepcopy(tail), recipe, feed, padded=False)
    for parameter in model.parameters():
        parameter.requires_grad_()
    moving = optimiser(list(model.parameters()), recipe)
    for label in labels:
        feed.noise = [torch.from_numpy(noise.random(shape, np.float32)).to(batch.dtype) for shape in noises]
        moving.zero_grad(set_to_none=True)
        given = torch.from_numpy(label)
        mean = loss(model(spatial(batch)), given.to(batch.dtype) if given.is_floating_point() else given)
        mean.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        moving.step()
        losses.append(float(mean.detach()))
    return losses
