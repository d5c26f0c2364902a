"""Batches of training as plugins change them."""

from collections.abc import Mapping, Sequence

import torch

from tuner.arrays import Flags
from tuner.backends.batches import Batch, BatchError, BatchFunction
from tuner.errors import call_extension
from tuner.plan.parts import DataEdit
from tuner.targets import Targets


def changed_batch(
    changes: Sequence[DataEdit],
    functions: Mapping[str, BatchFunction],
    batch: tuple[torch.Tensor, torch.Tensor],
    is_local: Flags,
    kind: tuple[Targets, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and labels of a batch after a plan's changes; without any, as they are.

    Args:
        changes: The changes, in their order.
        functions: What realises them, by kind.
        batch: Inputs, float32 [n, ...], and labels.
        is_local: Whether a sample is the user's own, bool [n].
        kind: What a label is, and the number of outputs.

    Raises:
        BatchError: A function raised, or returned something else.
    """
    inputs, labels = batch
    targets, outputs = kind
    if changes:
        labels = torch.from_numpy(targets.one_hot(labels.numpy(), outputs))
    for change in changes:
        given = Batch(inputs, labels, torch.default_generator, is_local, targets)
        result: object = call_extension(BatchError, change.kind, functions[change.kind], given, dict(change.settings))
        wanted, got = [_form(one) for one in (inputs, labels)], repr(result)[:80]
        if isinstance(result, tuple):
            got = str([_form(one) for one in result])
        if got != str(wanted):
            rule = f"it must return inputs and labels of the shapes and types that it was given, {wanted}, but it gave"
            raise BatchError(change.kind, f"{rule} {got}")
        inputs, labels = result  # type: ignore[misc]  # two tensors, as their forms say
    return inputs, labels


def _form(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
