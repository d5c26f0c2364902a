"""The last layer of a model, given one row per label."""

import torch
from torch import nn

from tuner.errors import TaskError


def head_of(model: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d] | None:
    """Return the last linear layer (or 1 × 1 convolution), which gives the outputs."""
    last = None
    for name, module in model.named_modules():
        pointwise = isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)
        if isinstance(module, nn.Linear) or (pointwise and isinstance(module, nn.Conv2d)):
            last = (name, module)
    return last


def resize_head(model: nn.Module, rows: tuple[int, ...], new: int, factory: str) -> None:
    """Keep some rows of the last layer and add `new` rows of zeros.

    Raises:
        TaskError: The last layer is not linear.
    """
    last = head_of(model)
    if last is None:
        raise TaskError(
            f"{factory} has no linear layer whose rows could be chosen, or added for new classes: use a model that "
            "ends with one, or give exactly the classes of the model"
        )
    name, head = last
    keep = torch.tensor(rows, dtype=torch.long)
    features = head.in_features if isinstance(head, nn.Linear) else head.in_channels
    resized = (
        nn.Linear(features, len(rows) + new, bias=head.bias is not None)
        if isinstance(head, nn.Linear)
        else nn.Conv2d(features, len(rows) + new, 1, bias=head.bias is not None)
    )
    with torch.no_grad():
        fresh = head.weight.new_zeros((new, *head.weight.shape[1:]))
        has_rows = head.weight.shape[0] > max(rows, default=-1)
        old = head.weight[keep] if has_rows else resized.weight[: len(rows)]
        resized.weight.copy_(torch.cat([old, fresh]))
        if head.bias is not None and resized.bias is not None:
            old = head.bias[keep] if has_rows else resized.bias[: len(rows)]
            resized.bias.copy_(torch.cat([old, head.bias.new_zeros(new)]))
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, resized)
    if hasattr(model, "num_classes"):  # squeezenet reshapes by it
        setattr(model, "num_classes", len(rows) + new)  # noqa: B010 - torch types attributes as tensors or modules
