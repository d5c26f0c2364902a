"""The layers that give a model's outputs, with one row per label."""

from collections.abc import Iterator

import torch
from torch import nn

from tuner.errors import TaskError
from tuner.targets import TargetScale
from tuner.task import ModelSpec

Head = nn.Linear | nn.Conv2d
_WAY_OUT = "use a model that ends with one, or give exactly the classes of the model"


def head_of(model: nn.Module) -> tuple[str, Head] | None:
    """Return the last linear layer (or 1 × 1 convolution) by its place in the model, for who has no sample to run."""
    last = None
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)):
            last = (name, module)
    return last


def heads_of(model: nn.Module, sample: torch.Tensor) -> dict[str, Head]:
    """Return the linear layers (or 1 × 1 convolutions) that give the outputs, by name.

    They are the first ones on every way from the outputs back to the input: two, where a model averages two heads.
    Every weight requires a gradient; `sample` is float32 [1, ...].
    """
    with torch.enable_grad():
        outputs: torch.Tensor = model(sample)
    rows = outputs.shape[1]
    linear = {
        id(module.weight): (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1))
        if module.weight.shape[0] == rows
    }
    heads, seen, pending = dict[str, Head](), set[torch.autograd.graph.Node](), [outputs.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        head = next((linear[id(weight)] for weight in _weights(node) if id(weight) in linear), None)
        if head is not None:
            heads[head[0]] = head[1]
        else:
            pending += [following for following, _ in node.next_functions]
    return {name: heads[name] for name, _ in model.named_modules() if name in heads}


def _weights(node: torch.autograd.graph.Node) -> Iterator[torch.Tensor]:
    """Yield the weights that an operation reads, as they are or transposed."""
    for read, _ in node.next_functions:
        operation = read
        while operation is not None:
            if hasattr(operation, "variable"):
                yield operation.variable
            before = operation.next_functions
            operation = before[0][0] if len(before) == 1 else None


def resize_heads(model: nn.Module, sample: torch.Tensor, rows: tuple[int, ...], new: int, spec: ModelSpec) -> None:
    """Keep some rows of the layers that give the outputs, in order, and add `new` rows of zeros; see `heads_of`.

    Raises:
        TaskError: The outputs are not those of linear layers.
    """
    heads = heads_of(model, sample)
    if not heads:
        inner = ", or name a value between the file's nodes as model.output" if spec.is_file else ""
        raise TaskError(
            f"the outputs of {spec.factory} come from no linear layer whose rows could be chosen, or added for new "
            f"classes: {_WAY_OUT}{inner}"
        )
    for name, head in heads.items():
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, _resized(head, rows, new))
    count_outputs(model, len(rows) + new)
    with torch.inference_mode():
        outputs = model(sample).shape[1]
    if outputs != len(rows) + new:
        raise TaskError(
            f"{spec.factory} gives {outputs} outputs after its last layer ({', '.join(heads)}) was given "
            f"{len(rows) + new} rows: {_WAY_OUT}"
        )


def standardise_heads(model: nn.Module, sample: torch.Tensor, scale: TargetScale, factory: str) -> None:
    """Let a model that answers in the targets' unit answer in standard deviations from their mean; see `heads_of`.

    Raises:
        TaskError: Its outputs are not those of linear layers with a bias.
    """
    mean, std = torch.tensor(scale.mean), torch.tensor(scale.std)
    with torch.inference_mode():
        wanted = (model(sample) - mean) / std
    heads = heads_of(model, sample[:1]).values()
    with torch.no_grad():
        for head in heads:
            head.weight.div_(std.reshape(-1, *(1,) * (head.weight.ndim - 1)))
            if head.bias is not None:
                head.bias.sub_(mean).div_(std)
        found = model(sample)
    if not heads or not torch.allclose(found, wanted, rtol=1e-3, atol=1e-3):
        raise TaskError(
            f"{factory} must end with a linear layer that has a bias, and nothing after it, for a regression: its "
            "outputs are numbers of any size"
        )


def count_outputs(model: nn.Module, outputs: int) -> None:
    """Let a model that keeps the number of its outputs have the right one."""
    if hasattr(model, "num_classes"):  # squeezenet reshapes by it
        setattr(model, "num_classes", outputs)  # noqa: B010 - torch types attributes as tensors or modules


def _resized(head: Head, rows: tuple[int, ...], new: int) -> Head:
    """Return a layer with some rows of another, and rows of zeros."""
    keep = torch.tensor(rows, dtype=torch.long)
    has_bias = head.bias is not None
    resized = (
        nn.Linear(head.in_features, len(rows) + new, bias=has_bias)
        if isinstance(head, nn.Linear)
        else nn.Conv2d(head.in_channels, len(rows) + new, 1, bias=has_bias)
    )
    with torch.no_grad():
        resized.weight.copy_(torch.cat([head.weight[keep], head.weight.new_zeros((new, *head.weight.shape[1:]))]))
        if head.bias is not None and resized.bias is not None:
            resized.bias.copy_(torch.cat([head.bias[keep], head.bias.new_zeros(new)]))
    return resized
