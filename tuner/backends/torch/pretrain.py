"""Pretrain a built-in task's network on its global data, once per device."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from tuner.backends.torch.model import state_hash
from tuner.errors import TaskError
from tuner.folders import cache_folder
from tuner.task import Task, normalise


def pretrained(task: Task, model: nn.Module) -> None:
    """Give `model` weights trained on the global training samples; kept on this device for the next time.

    Raises:
        TaskError: The task has no global data to train on.
    """
    recipe, domain = task.model.pretrain, task.global_
    if recipe is None or domain is None:
        raise TaskError("model.pretrain needs [global] data to train on: add it, or give model.weights")
    known = replace(task, local=domain, local_labels=(), labelled=True).fingerprint()  # whatever a user's own data are
    digest = hashlib.blake2b(f"{known}{state_hash(model)}{recipe}".encode(), digest_size=16).hexdigest()
    path = cache_folder() / "pretrained" / f"{digest}.safetensors"
    if path.exists():
        model.load_state_dict(load_file(path))
        return
    generator = np.random.default_rng(0)
    inputs = torch.from_numpy(normalise(np.stack([domain.train.load(i) for i in range(len(domain.train))]), task.input))
    labels = torch.from_numpy(domain.train.labels)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    steps = recipe.epochs * -(-len(labels) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    model.train()
    for _ in range(recipe.epochs):
        for rows in np.array_split(generator.permutation(len(labels)), -(-len(labels) // recipe.batch_size)):
            optimiser.zero_grad()
            outputs = model(inputs[rows])
            chosen = labels[rows]
            multi = task.loss == "multi-label"
            loss = (
                functional.binary_cross_entropy_with_logits(outputs, chosen[:, : outputs.shape[1]])
                if multi
                else functional.cross_entropy(outputs, chosen)
            )
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimiser.step()
            schedule.step()
    model.eval()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_suffix(f".{os.getpid()}.part")
    save_file(model.state_dict(), part)
    Path(part).replace(path)
