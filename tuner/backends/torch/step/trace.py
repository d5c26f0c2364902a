"""The training step as a graph: forward, loss, gradients and optimiser update of a tail, traced once.

The graph is pure. What changes from step to step goes in and comes out: weights, running statistics, optimiser state.
What a step draws or looks up goes in. So it can be planned, run in the planned order, and exported to ONNX.

Four things differ from the eager loop (`tuner.backends.torch.engines.eager`) in form, none in what is computed:

- **Dropout**: each draw takes an input of kind `noise`, uniform in [0, 1). An element is kept where the noise is at
  least the dropout's probability.
- **Partial batches** are padded with samples of weight zero, which loss, gradients and statistics of norms leave out.
- **Optimisers** follow torch.optim's single-tensor formulas; Adam's bias corrections are computed in float64, as there.
- **Micro-batches** are two steps: one that adds a part's gradients to sums, and the last part's, which updates.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from tuner.backends.torch.model.graph.layout import spatial
from tuner.backends.torch.step.losses import ExitLoss, ExtendedLoss
from tuner.backends.torch.step.optimiser import STATES, bias_corrected, clipped, updated
from tuner.backends.torch.step.prepare import moving_buffers, noise_shapes, prepared
from tuner.backends.torch.step.substitutes import Feed, substituted
from tuner.backends.torch.step.traced import EAGERLY, Step, StepError, graph_of, port_of, refused
from tuner.backends.torch.task_loss import StepLoss
from tuner.ort.layout import Port
from tuner.plan.parts import RecipePlan

#: What a step does with gradients: update by them; add them to sums; add the sums to them and update.
BatchPart = Literal["whole", "adding", "last"]


def trace(
    tail: nn.Module,
    recipe: RecipePlan,
    *,
    loss: StepLoss | ExtendedLoss | ExitLoss,
    input_shape: Sequence[int],
    outputs: int,
    batch_size: int,
    padded: bool = True,
    part: BatchPart = "whole",
) -> Step:
    """Trace one training step of a tail. Nothing is computed and nothing of the tail changes.

    Args:
        tail: What trains: its parameters that require a gradient. One tensor in, logits [n, outputs] out.
        recipe: Optimiser, its settings, weight decay and whether batch norms keep their statistics. SGD without
            momentum keeps no state.
        loss: A task's; one with terms of plugins, which take the given model's logits as an input of kind `teacher`
            where one of them reads these; an exit's, labels float32 [n, 2 · outputs].
        input_shape: Shape of one sample.
        outputs: Number of the tail's outputs.
        batch_size: Samples a step, or of one part of a batch.
        padded: Whether samples of weight zero leave the statistics of training batch norms alone. Without it these are
            PyTorch's own, which are faster, and a partial batch needs a step of its own size.
        part: Where a batch is cut into parts, `adding` for all but the last one: gradients, times the part's share of
            the batch's weight (an input of kind `share`), are added to states named ``sum.NAME``, which whoever runs
            the steps sets to 0 before the first part. The sum over the parts is the batch's gradient.

    Raises:
        StepError: The tail draws random numbers other than for dropouts, or depends on the values of tensors; or the
            optimiser is another one.
    """
    if recipe.optimiser not in STATES:
        raise StepError(f"a step must update by {' or '.join(STATES)}, got {recipe.optimiser!r}: {EAGERLY}")
    feed = Feed()
    model = prepared(tail, recipe, feed, padded=padded)
    with refused(), FakeTensorMode(allow_non_fake_inputs=True):
        sample = spatial(torch.empty(batch_size, *input_shape))
        noises = noise_shapes(model, sample, feed)
    moving = moving_buffers(model)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    stateless = part == "adding" or (recipe.optimiser == "sgd" and recipe.momentum == 0)
    states = () if stateless else STATES[recipe.optimiser]
    inputs = (
        Port("input", "input", tuple(sample.shape), "float32"),
        *_target_ports(loss, batch_size, outputs),
        Port("sample_weight", "sample_weight", (batch_size,), "float32"),
        *(Port(name, name, (), "float32") for name in _numbers(recipe, part)),
        *(Port(name, "noise", shape, "float32") for name, shape in noises.items()),
        *(port_of(name, "parameter", value) for name, value in trained.items()),
        *(port_of(name, "buffer", value) for name, value in model.named_parameters() if name not in trained),
        *(port_of(name, "buffer", value) for name, value in model.named_buffers()),
        *(port_of(f"{state}.{name}", "state", value) for name, value in trained.items() for state in states),
    )
    sums = tuple(port_of(f"sum.{name}", "state", value) for name, value in trained.items())
    moved = sums if part == "adding" else [port for port in inputs if port.kind in {"parameter", "state"}]
    inputs += () if part == "whole" else sums
    replaced = [port for port in inputs if port in moved or port.name in moving]

    def step(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = {port.name: value for port, value in zip(inputs, values, strict=True)}
        after = {name: before[name].clone() for name in moving}
        weights = {
            port.name: before[port.name].detach().requires_grad_() for port in inputs if port.kind == "parameter"
        }
        buffers = {port.name: before[port.name] for port in inputs if port.kind == "buffer"} | after
        feed.weight, feed.noise = before["sample_weight"], [before[name] for name in noises]
        with substituted(feed):
            logits = functional_call(model, weights | buffers, (before["input"],))
        losses = _losses(loss, logits, before)
        mean = (losses * before["sample_weight"]).sum() / before["sample_weight"].sum()
        mean = mean if part == "whole" else mean * before["share"]
        found = torch.autograd.grad(mean, list(weights.values()), allow_unused=True)
        rates = None if part == "adding" else bias_corrected(recipe, before)
        gradients: list[torch.Tensor | None] = list(found)
        if part != "whole":
            pairs = zip(weights, found, strict=True)
            gradients = [None if own is None else before[f"sum.{name}"] + own for name, own in pairs]
        if part != "adding":
            gradients = clipped(gradients, recipe)
        for (name, value), summed in zip(weights.items(), gradients, strict=True):
            names = [f"sum.{name}"] if part == "adding" else [name, *(f"{state}.{name}" for state in states)]
            old = [value.detach() if own == name else before[own] for own in names]
            if summed is None:  # torch.optim leaves it alone
                new = [own.clone() for own in old]
            else:
                new = [summed]
                if rates is not None:
                    new = updated(recipe, old, summed, before["learning_rate"], rates)
            after.update(zip(names, new, strict=True))
        return mean.detach(), *(after[port.name] for port in replaced)

    graph = graph_of(step, inputs)
    results = tuple(Port(f"next.{port.name}", port.kind, port.shape, port.dtype) for port in replaced)
    updates = {new.name: old.name for new, old in zip(results, replaced, strict=True)}
    followed = None if part == "adding" else recipe
    return Step(graph, inputs, (Port("loss", "loss", (), "float32"), *results), updates, followed)


def _target_ports(loss: StepLoss | ExtendedLoss | ExitLoss, batch_size: int, outputs: int) -> Iterator[Port]:
    """Yield the inputs that the loss compares logits with."""
    if isinstance(loss, ExtendedLoss):
        yield from _target_ports(loss.own, batch_size, outputs)
        if loss.has_teacher:
            yield Port("teacher", "teacher", (batch_size, outputs), "float32")
    elif isinstance(loss, ExitLoss):
        yield Port("label", "label", (batch_size, 2 * outputs), "float32")
    else:
        labels = loss.targets.blank(batch_size, outputs)
        yield Port("label", "label", labels.shape, labels.dtype.name)


def _numbers(recipe: RecipePlan, part: BatchPart) -> list[str]:
    """Return the names of the scalars that a step takes."""
    share = ["share"] if part != "whole" else []
    count = ["step_count"] if recipe.optimiser != "sgd" else []
    return share if part == "adding" else [*share, "learning_rate", *count]


def _losses(
    loss: StepLoss | ExtendedLoss | ExitLoss, logits: torch.Tensor, inputs: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return each sample's loss, float32 [n], of logits and a step's inputs by name."""
    label = inputs["label"]
    if isinstance(loss, ExtendedLoss):
        added = loss.added(logits, label, inputs["input"], inputs.get("teacher"))
        return loss.own.losses(logits, label) + added
    return loss.losses(logits, label)
