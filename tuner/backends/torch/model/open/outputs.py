"""What a model's outputs are: logits, the same ones each time, of weights that are numbers."""

from collections.abc import Callable

import torch
from torch import nn

from tuner.errors import TaskError
from tuner.task import Task

#: Operations that only change the shape of what they are given.
_SHAPES = ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Alias", "Clone", "ToCopy", "Slice", "T")
#: What may stand after the logits, by the operation that autograd names.
_ENDS: dict[str, type[nn.Module]] = {"Softmax": nn.Softmax, "LogSoftmax": nn.LogSoftmax, "Sigmoid": nn.Sigmoid}
#: Largest difference of two outputs that are the same, relative to the largest.
_SAME = 1e-4


def check_weights(model: nn.Module, source: str) -> None:
    """Refuse weights that are not numbers; buffers may be infinite, as masks are.

    Raises:
        TaskError: The first such tensor.
    """
    buffers = {name for name, _ in model.named_buffers()}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            continue
        broken = torch.isnan(value) if name in buffers else ~torch.isfinite(value)
        if broken.any():
            raise TaskError(
                f"model.weights: {name!r} of {source} has {int(broken.sum()):,} of {value.numel():,} values that are "
                "not finite numbers: give weights of a training that did not diverge"
            )


def check_repeatable(model: nn.Module, sample: torch.Tensor, factory: str) -> None:
    """Refuse a model whose outputs in evaluation mode differ each time; `sample` is float32 [1, ...].

    Raises:
        TaskError: Two runs differ.
    """
    with torch.inference_mode():
        first, second = model(sample), model(sample)
    if not torch.equal(first.nan_to_num(), second.nan_to_num()):
        difference = float((first - second).abs().max())
        raise TaskError(
            f"{factory} answers the same sample differently each time in evaluation mode (by up to {difference:.2g}), "
            "so no score of it means anything: let dropout and noise depend on self.training, as in "
            "F.dropout(x, 0.5, self.training)"
        )


def logits_of(model: nn.Module, task: Task, sample: torch.Tensor, say: Callable[[str], object]) -> nn.Module:
    """Return a model that gives logits: without the Softmax, LogSoftmax or Sigmoid module at its end.

    Args:
        model: The model, in evaluation mode.
        task: Its task; targets that are numbers are what a model gives, to its end.
        sample: float32 [1, ...].
        say: Receives a line on what was left out.

    Raises:
        TaskError: It ends in a function that cannot be left out, or that is of another kind of labels.
    """
    end, factory = _end_of(model, sample), task.model.factory
    if not task.targets.ends(end, factory):
        return model
    with torch.inference_mode():
        before = model(sample)
    calls = list[nn.Module]()
    kinds = tuple(_ENDS.values())
    ends = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    handles = [module.register_forward_hook(lambda module, *_: calls.append(module)) for _, module in ends]
    with torch.inference_mode():
        model(sample)
    for handle in handles:
        handle.remove()
    name = next((name for name, module in ends if calls and module is calls[-1]), "")
    parent, _, leaf = name.rpartition(".")
    if name:
        last = model.get_submodule(name)
        setattr(model.get_submodule(parent), leaf, nn.Identity())
        with torch.inference_mode():
            after = last(model(sample))
        if after.shape == before.shape and torch.allclose(after, before, rtol=_SAME, atol=_SAME):
            say(f"the {end} at the end of {factory} ({name}) is left out: training needs the logits")
            return model
        setattr(model.get_submodule(parent), leaf, last)
    if end == "LogSoftmax":  # it changes neither the loss nor a softmax of it
        return model
    raise TaskError(
        f"{factory} ends in {end.lower()}, but its outputs must be logits: probabilities would be taken for logits, in "
        "training and in predictions: return what comes before it"
    )


def _end_of(model: nn.Module, sample: torch.Tensor) -> str:
    """Return the name of what gives probabilities at a model's end; empty where its outputs are logits."""
    with torch.enable_grad():
        outputs: torch.Tensor = model(sample.clone().requires_grad_())
    node = outputs.grad_fn
    while node is not None and (name := node.name().removesuffix("Backward0").removesuffix("Backward1")) in _SHAPES:
        node = node.next_functions[0][0]
    if node is not None and name in _ENDS:
        return name
    noise = torch.rand(4, *sample.shape[1:], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        values = model(torch.cat([sample, noise])).double()
    if values.shape[1] < 2 or not torch.isfinite(values).all():  # noqa: PLR2004 - two classes at least
        return ""
    if (values >= 0).all() and torch.allclose(values.sum(dim=1), torch.ones(len(values)).double(), atol=_SAME):
        return "Softmax"
    if (values <= 0).all() and torch.allclose(values.exp().sum(dim=1), torch.ones(len(values)).double(), atol=_SAME):
        return "LogSoftmax"
    return ""
