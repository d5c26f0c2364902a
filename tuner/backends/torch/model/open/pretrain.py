"""Pretrain a built-in task's network on its global data, once per device."""

import hashlib
from dataclasses import replace

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tuner.arrays import RowNumbers
from tuner.backends.torch.logistic import fit_linear
from tuner.backends.torch.model.head import Head, head_of
from tuner.backends.torch.model.open.factory import read_weights
from tuner.backends.torch.model.open.fingerprint import state_hash
from tuner.backends.torch.task_loss import torch_loss
from tuner.errors import MemoryLimitError, TaskError
from tuner.files import cache_folder, private_file
from tuner.machine.process_memory import PeakMeter, memory_limit
from tuner.plan.parts import RecipePlan
from tuner.planner.device import FILL_BATCH
from tuner.task import Task
from tuner.task.data.samples import Samples
from tuner.task.partition import recording_folds
from tuner.training.epoch import EpochLoop
from tuner.training.schedule import batches_of, even_batches_of
from tuner.training.steps import Steps

#: How a head alone learns, as far as kept weights depend on it; and by how many folds its penalty is chosen.
HEAD_ALONE, FOLDS = "the head by L-BFGS", 5


def pretrained(task: Task, model: nn.Module) -> None:
    """Give `model` weights trained on the global training samples; kept on this device for the next time.

    Where `model.weights` are without a head, the head alone learns: by its best penalty, whatever the epochs.

    Raises:
        TaskError: The task has no global data to train on.
        TrainingError: The loss is no longer a number.
        MemoryLimitError: It takes more memory than this process may add.
    """
    settings, domain = task.model.pretrain, task.global_
    if settings is None or domain is None:
        raise TaskError("model.pretrain needs [global] data to train on: add it, or give model.weights")
    data = replace(task, local=domain, local_labels=(), labelled=True).fingerprint()  # whatever a user's own data are
    head = _missing_head(task, model)
    how = settings if head is None else f"{HEAD_ALONE}, else {settings}"
    digest = hashlib.blake2b(f"{data}{state_hash(model)}{how}".encode(), digest_size=16).hexdigest()
    path = cache_folder() / "pretrained" / f"{digest}.safetensors"
    if path.exists():
        model.load_state_dict(load_file(path))
        return
    if settings.is_preview:
        return
    recipe = RecipePlan(settings.epochs, settings.batch_size, learning_rate=settings.learning_rate)
    features = None if head is None else _features(task, model, head, domain.train)
    if head is None or features is None or not _learned(task, head, features, domain.train):
        steps = _steps(task, model, domain.train, recipe, head, features)
        for _ in EpochLoop(steps, recipe, len(domain.train), 0, batches=even_batches_of).epochs():
            pass
    model.eval()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with private_file(path) as part:
        save_file(model.state_dict(), part)


def _missing_head(task: Task, model: nn.Module) -> Head | None:
    """Return the head that the given weights lack; None where they have it, or there are none."""
    last, own = head_of(model), set(model.state_dict())
    has_head = task.model.weights is None or last is None or f"{last[0]}.weight" in read_weights(task.model, own)[0]
    return None if has_head or last is None else last[1]


def _features(task: Task, model: nn.Module, head: Head, samples: Samples) -> torch.Tensor:
    """Return what enters the head, float32 [n, ...]."""
    features: list[torch.Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, values: features.append(values[0]))
    try:
        with torch.no_grad():
            for rows in batches_of(np.arange(len(samples)), FILL_BATCH):
                model(torch.from_numpy(task.batch(samples, rows)))
    finally:
        handle.remove()
    return torch.cat(features)


def _learned(task: Task, head: Head, features: torch.Tensor, samples: Samples) -> bool:
    """Let the head have the weights with the least loss; return whether it is one that is applied once to a sample."""
    outputs, count = head.weight.flatten(1).shape
    flat = features.flatten(1)
    if flat.shape != (len(samples), count) or head.bias is None:
        return False
    recordings = np.unique([samples.origin(index) for index in range(len(samples))], return_inverse=True)[1]
    folds = recording_folds(samples.labels, recordings, FOLDS)
    labels = task.targets.first(samples.labels, outputs)
    found = fit_linear(flat.numpy(), labels, outputs, torch_loss(task.targets), folds)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(found.weight).view_as(head.weight))
        head.bias.copy_(torch.from_numpy(found.bias))
    return True


def _steps(
    task: Task, model: nn.Module, samples: Samples, recipe: RecipePlan, head: Head | None, features: torch.Tensor | None
) -> "_InMemory":
    """Return what trains all of a model, or the given head alone on its features."""
    meter, labels = PeakMeter(), torch.from_numpy(samples.labels)
    if head is None or features is None:
        inputs = torch.from_numpy(task.batch(samples, range(len(samples))))
        return _InMemory(task, model, inputs, labels, recipe, meter)
    own = nn.Sequential(head) if isinstance(head, nn.Linear) else nn.Sequential(head, nn.Flatten())
    return _InMemory(task, own, features, labels, recipe, meter)


class _InMemory(Steps):
    """Trains a module on inputs in memory."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        recipe: RecipePlan,
        meter: PeakMeter,
    ) -> None:
        self._model, self._inputs, self._labels = model, inputs, labels
        self._meter, self._limit, self._loss = meter, memory_limit(), torch_loss(task.targets)
        self._optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)  # decays by PyTorch's own 0.01

    def begin_epoch(self) -> None:
        """Put the model in training mode."""
        self._model.train()

    def step(self, rows: RowNumbers, rate: float) -> float:
        """Train on one batch; return its mean loss."""
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        outputs, labels = self._model(self._inputs[rows]), self._labels[rows]
        loss = self._loss.mean(outputs, self._loss.targets.first(labels, outputs.shape[1]))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimiser.step()
        if self._limit is not None and (peak := self._meter.peak_bytes()) > self._limit:
            raise MemoryLimitError(
                f"pretraining took {peak / 1e6:,.0f} MB, more than --memory allows: give more, or model.weights"
            )
        return float(loss.detach())
