"""What the given model's head reads of the user's samples: an entry point of the group `tuner.questions`."""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from tuner.backends.base import silent
from tuner.backends.torch.features.access import Access
from tuner.backends.torch.features.selection import whole_partition
from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.model.head import heads_of
from tuner.backends.torch.trial.edits.solve_again import head_inputs
from tuner.backends.torch.trial.opened import OpenTask
from tuner.backends.torch.trial.untouched import stored_or_computed
from tuner.errors import UnsupportedError
from tuner.store.store import Store
from tuner.task.data.samples import mean_of_wholes, wholes


def write_head_inputs(opened: OpenTask, partition: str, store: Store, threads: int, file: Path) -> tuple[str, ...]:
    """Write what the given model's head reads of all that a partition's samples are parts of.

    Args:
        opened: The task.
        partition: Such as ``local.train``.
        store: Features, which are read where all that are needed are there.
        threads: Threads of the model.
        file: Safetensors file to write: ``features``, float32 [wholes, features], means over the samples of each of
            `tuner.task.data.samples.wholes`; and ``labels`` of these, as the task has them.

    Returns:
        The names of the wholes.

    Raises:
        UnsupportedError: The model does not end in one linear layer.
    """
    torch.set_num_threads(threads)
    access = Access(opened.task, opened.model, store, threads, silent)
    selection = whole_partition(access.task, partition)
    cut, inputs = stored_or_computed(access, selection)
    tail = access.loaded.tail(cut).eval().requires_grad_()
    heads = list(heads_of(tail, spatial(inputs.read(np.arange(1)))).values())
    if len(heads) != 1:
        raise UnsupportedError(f"the model must end in one linear layer, but it has {len(heads)}: give another model")
    features, _ = head_inputs(tail, heads[0], inputs)
    names, places = wholes(selection.samples)
    labels = selection.samples.labels[np.unique(places, return_index=True)[1]]
    save_file({"features": mean_of_wholes(features, places).astype(np.float32), "labels": labels}, file)
    return names
