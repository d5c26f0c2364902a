"""The training step as a graph: forward, loss, gradients and optimiser update of a tail, traced once.

The graph is pure. What changes from step to step goes in and comes out: weights, running statistics, optimiser state.
What a step draws or looks up goes in: the learning rate, Adam's step count, the noise of dropout. So it can be planned
(`tuner.planner`), run by PyTorch in the planned order, and exported to ONNX (`tuner.backends.torch.lower`).

Three things differ from the eager loop (`tuner.backends.torch.training`) in form, none in what is computed:

- **Dropout** is active in the eager loop, which draws masks from PyTorch's generator. Here every dropout takes an input
  of kind `noise`, uniform in [0, 1): an element is kept where the noise is at least the dropout's probability. The
  distribution is the eager one's; given the same masks, the losses are too.
- **Partial batches** are padded with samples of weight zero. Loss, gradients and, where batch norms train, their
  statistics are those of the real samples.
- **Optimisers** follow torch.optim's single-tensor formulas; Adam's bias corrections are computed in float64, as there.
- **Micro-batches** are two steps: one that adds a part's gradients to sums, and the last part's, which updates.
"""

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from tuner.backends.port import Port
from tuner.backends.torch.graph import NORMS
from tuner.backends.torch.heads import Taught
from tuner.backends.torch.prefix import spatial
from tuner.backends.torch.standins import Dropout, Feed, GlobalPools, WeightedNorm
from tuner.backends.torch.training import MOMENTUM
from tuner.errors import UnsupportedError
from tuner.plan import RecipePlan

__all__ = ["Loss", "Part", "Port", "Step", "StepError", "prepared", "trace", "trace_inference"]

Loss = Literal["single-label", "multi-label", "squared"]
#: What a step does with gradients: update by them; add them to sums; add the sums to them and update.
Part = Literal["whole", "adding", "last"]
BETAS = (0.9, 0.999)  # torch.optim.Adam's and AdamW's own
EPSILON = 1e-8
#: Optimiser state by recipe, one tensor of the parameter's shape each.
STATES: Mapping[str, tuple[str, ...]] = {"sgd": ("momentum",), "adam": ("mean", "square"), "adamw": ("mean", "square")}

DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class StepError(UnsupportedError):
    """A training step cannot be traced; the eager loop can still run it."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A traced training step.

    Attributes:
        graph: At the level of ATen, functional, not decomposed; takes tensors in the order of `inputs`, returns a tuple
            in the order of `outputs`. Traced with maps and convolution weights channels last, as the eager loop has
            them.
        inputs: What goes in.
        outputs: What comes out; the loss, the real samples' mean, is the first.
        updates: By the name of an output, the input that it replaces in the next step.
        recipe: What its updates follow; None where it has none, or adds gradients to sums.
    """

    graph: fx.GraphModule
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    updates: Mapping[str, str]
    recipe: RecipePlan | None = None


def trace(
    tail: nn.Module,
    recipe: RecipePlan,
    *,
    loss: Loss | Taught,
    input_shape: Sequence[int],
    outputs: int,
    batch_size: int,
    padded: bool = True,
    part: Part = "whole",
    momentum: float = MOMENTUM,
) -> Step:
    """Trace one training step of a tail. Nothing is computed and nothing of the tail changes.

    Args:
        tail: What trains, every parameter of it; one tensor in, logits [n, outputs] out.
        recipe: Optimiser, weight decay and whether batch norms keep their statistics.
        loss: `single-label`: cross entropy, labels int64 [n]; `multi-label`: binary cross entropy with logits, labels
            float32 [n, outputs]; `squared`: mean squared error, which no task has but NNTrainer's models do, labels
            likewise; an exit's, labels float32 [n, 2 · outputs].
        input_shape: Of one sample.
        outputs: Of the tail.
        batch_size: Samples a step, or of one part of a batch.
        padded: Whether samples of weight zero leave the statistics of training batch norms alone. Without it these are
            PyTorch's own, which are faster, and a partial batch needs a step of its own size.
        part: Of a batch that is cut into parts, `adding` for all but the last one: gradients, times the part's share of
            the batch's weight (an input of kind `share`), are added to states named ``sum.NAME``, which whoever runs
            the steps sets to 0 before the first part. The sum over the parts is the batch's gradient.
        momentum: Of SGD; 0 keeps no state.

    Raises:
        StepError: The tail draws random numbers outside of dropout modules, or depends on the values of tensors; or the
            loss is another one.
    """
    if loss not in get_args(Loss) and not isinstance(loss, Taught):
        raise StepError(f"a step has the loss {' or '.join(get_args(Loss))}, not {loss!r}: train it eagerly")
    feed = Feed()
    model = prepared(tail, recipe, feed, padded=padded)
    with FakeTensorMode(allow_non_fake_inputs=True):
        sample = spatial(torch.empty(batch_size, *input_shape))
        noises = _noises(model, sample, feed)
    moved = _moved(model)
    plain = recipe.optimiser == "sgd" and momentum == 0
    states = () if part == "adding" or plain else STATES[recipe.optimiser]
    wide = 2 * outputs if isinstance(loss, Taught) else outputs
    label_shape = (batch_size,) if loss == "single-label" else (batch_size, wide)
    inputs = (
        Port("input", "input", tuple(sample.shape), "float32"),
        Port("label", "label", label_shape, "int64" if loss == "single-label" else "float32"),
        Port("sample_weight", "sample_weight", (batch_size,), "float32"),
        *(Port(name, name, (), "float32") for name in _numbers(recipe, part)),
        *(Port(name, "noise", shape, "float32") for name, shape in noises.items()),
        *(_port(name, "parameter", value) for name, value in model.named_parameters()),
        *(_port(name, "buffer", value) for name, value in model.named_buffers()),
        *(_port(f"{one}.{name}", "state", value) for name, value in model.named_parameters() for one in states),
    )
    sums = tuple(_port(f"sum.{name}", "state", value) for name, value in model.named_parameters())
    trained = sums if part == "adding" else [one for one in inputs if one.kind in {"parameter", "state"}]
    inputs += () if part == "whole" else sums
    replaced = [one for one in inputs if one in trained or one.name in moved]

    def step(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {port.name: value for port, value in zip(inputs, values, strict=True)}
        following = {name: given[name].clone() for name in moved}
        weights = {port.name: given[port.name].detach().requires_grad_() for port in inputs if port.kind == "parameter"}
        held = {port.name: given[port.name] for port in inputs if port.kind == "buffer"} | following
        feed.weight, feed.noise = given["sample_weight"], [given[name] for name in noises]
        with GlobalPools():
            logits = functional_call(model, weights | held, (given["input"],))
        mean = _mean_loss(loss, logits, given["label"], given["sample_weight"])
        mean = mean if part == "whole" else mean * given["share"]
        gradients = torch.autograd.grad(mean, list(weights.values()), allow_unused=True)
        rates = None if part == "adding" else _rates(recipe, given)
        for (name, value), gradient in zip(weights.items(), gradients, strict=True):
            total = None if part == "whole" else given[f"sum.{name}"]
            summed = gradient if total is None or gradient is None else total + gradient
            names = [f"sum.{name}"] if part == "adding" else [name, *(f"{one}.{name}" for one in states)]
            old = [value.detach() if one == name else given[one] for one in names]
            if summed is None:  # torch.optim leaves it alone
                new = [one.clone() for one in old]
            else:
                new = [summed]
                if rates is not None:
                    new = _updated(recipe, momentum, old, summed, given["learning_rate"], rates)
            following.update(zip(names, new, strict=True))
        return mean.detach(), *(following[port.name] for port in replaced)

    graph = _traced(step, inputs)
    after = tuple(Port(f"next.{one.name}", one.kind, one.shape, one.dtype) for one in replaced)
    updates = {new.name: old.name for new, old in zip(after, replaced, strict=True)}
    followed = None if part == "adding" else recipe
    return Step(graph, inputs, (Port("loss", "loss", (), "float32"), *after), updates, followed)


def trace_inference(tail: nn.Module, *, input_shape: Sequence[int], outputs: int, batch_size: int) -> Step:
    """Trace a tail in evaluation mode, its weights as inputs: what says how good the weights of the moment are.

    Args:
        tail: As for `trace`.
        input_shape: Of one sample.
        outputs: Of the tail.
        batch_size: Samples at once.

    Returns:
        A step whose one output, `logits` [n, outputs], updates nothing.

    Raises:
        StepError: The tail depends on the values of tensors.
    """
    shared = {id(value): value for value in itertools.chain(tail.parameters(), tail.buffers())}
    model = copy.deepcopy(tail, shared).eval()
    inputs = (
        Port("input", "input", (batch_size, *input_shape), "float32"),
        *(_port(name, "parameter", value) for name, value in model.named_parameters()),
        *(_port(name, "buffer", value) for name, value in model.named_buffers()),
    )

    def infer(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {port.name: value for port, value in zip(inputs, values, strict=True)}
        with torch.no_grad(), GlobalPools():
            return (functional_call(model, given, (given.pop("input"),)),)

    return Step(_traced(infer, inputs), inputs, (Port("logits", "logits", (batch_size, outputs), "float32"),), {})


def _traced(step: Callable[..., tuple[torch.Tensor, ...]], inputs: Sequence[Port]) -> fx.GraphModule:
    """Return a function of tensors as a pure graph of ATen operators.

    Raises:
        StepError: It cannot be one.
    """
    with FakeTensorMode():
        example = [spatial(torch.empty(port.shape, dtype=getattr(torch, port.dtype))) for port in inputs]
    try:
        graph = make_fx(step, {torch.ops.aten.native_batch_norm.default: _batch_norm}, tracing_mode="fake")(*example)
        graph = make_fx(torch.func.functionalize(graph, remove="mutations"), tracing_mode="fake")(*example)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StepError(f"a step is traced once, but this tail cannot be ({reason}): train it eagerly") from error
    _clean(graph)
    return graph


def _batch_norm(
    value: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Let running statistics move where functionalisation sees it: the operator's schema hides that it changes them."""
    if not training or mean is None or variance is None:
        return NotImplemented
    functional_norm = torch.ops.aten._native_batch_norm_legit_functional.default  # noqa: SLF001 - torch names it so
    normalised, batch_mean, scale, *moved = functional_norm(
        value, weight, bias, mean, variance, training, momentum, eps
    )
    mean.copy_(moved[0])
    variance.copy_(moved[1])
    return normalised, batch_mean, scale


def _numbers(recipe: RecipePlan, part: Part) -> list[str]:
    """Return the scalars that a step is given."""
    share = ["share"] if part != "whole" else []
    count = ["step_count"] if recipe.optimiser != "sgd" else []
    return share if part == "adding" else [*share, "learning_rate", *count]


def _port(name: str, kind: str, value: torch.Tensor) -> Port:
    return Port(name, kind, tuple(value.shape), str(value.dtype).removeprefix("torch."))


def prepared(tail: nn.Module, recipe: RecipePlan, feed: Feed, *, padded: bool) -> nn.Module:
    """Return a copy of the tail that shares its weights, in training mode, with modules that read from `feed`."""
    shared = {id(value): value for value in itertools.chain(tail.parameters(), tail.buffers())}
    model = copy.deepcopy(tail, shared).train()
    for module in model.modules():
        if recipe.freeze_bn and isinstance(module, NORMS):
            module.eval()
    for name, module in list(model.named_modules()):
        if isinstance(module, DROPOUTS) and module.p > 0:
            model = _with(model, name, Dropout(module, module.p, feed))
        elif padded and isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            model = _with(model, name, WeightedNorm(module, feed))
    return model


def _with(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    if not name:
        return module
    model.set_submodule(name, module)
    return model


def _noises(model: nn.Module, sample: torch.Tensor, feed: Feed) -> dict[str, tuple[int, ...]]:
    """Return the shape of every dropout's noise, by name, in the order of their calls."""
    if not any(isinstance(module, Dropout) for module in model.modules()):
        return {}
    feed.weight = torch.ones(len(sample))
    values = itertools.chain(model.named_parameters(), model.named_buffers())
    with torch.no_grad():  # on copies, as counters move even here
        functional_call(model, {name: torch.empty_like(value) for name, value in values}, (sample,))
    return {f"noise.{index}": shape for index, shape in enumerate(feed.shapes)}


def _moved(model: nn.Module) -> list[str]:
    """Return the buffers that a step changes: running statistics of norms that train."""
    return [
        f"{name}.{key}".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, (WeightedNorm, nn.modules.batchnorm._NormBase))  # noqa: SLF001 - torch has no public base class of its norms
        and module.training
        for key, _ in module.named_buffers()
    ]


def _mean_loss(loss: Loss | Taught, logits: torch.Tensor, label: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the weighted mean of the samples' losses."""
    if isinstance(loss, Taught):
        losses = loss.losses(logits, label)
    elif loss == "squared":
        losses = functional.mse_loss(logits, label, reduction="none").mean(1)
    elif loss == "multi-label":
        losses = functional.binary_cross_entropy_with_logits(logits, label, reduction="none").mean(1)
    else:
        losses = functional.cross_entropy(logits, label, reduction="none")
    return (losses * weight).sum() / weight.sum()


def _rates(recipe: RecipePlan, given: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Adam's step size and the root of its second bias correction; of SGD the learning rate and 1."""
    rate = given["learning_rate"]
    if recipe.optimiser == "sgd":
        return rate, torch.ones_like(rate)
    exact = given["step_count"].double()  # 1 - 0.999 in float32 is off by 6e-5
    size = rate.double() / (1 - torch.pow(BETAS[0], exact))
    return size.float(), torch.sqrt(1 - torch.pow(BETAS[1], exact)).float()


def _updated(
    recipe: RecipePlan,
    momentum: float,
    old: Sequence[torch.Tensor],
    gradient: torch.Tensor,
    rate: torch.Tensor,
    rates: tuple[torch.Tensor, torch.Tensor],
) -> list[torch.Tensor]:
    """Return the next parameter and state, by the formulas of torch.optim.SGD, Adam and AdamW.

    Args:
        recipe: Optimiser and weight decay.
        momentum: Of SGD.
        old: The parameter and its state.
        gradient: Of the parameter.
        rate: The learning rate.
        rates: From `_rates`.
    """
    value, *state = old
    size, root = rates
    if recipe.weight_decay and recipe.optimiser != "adamw":
        gradient = gradient + recipe.weight_decay * value
    if recipe.optimiser == "sgd":
        moved = momentum * state[0] + gradient if state else gradient
        return [value - size * moved, moved][: len(old)]
    if recipe.weight_decay and recipe.optimiser == "adamw":
        value = value * (1 - rate * recipe.weight_decay)
    mean = state[0] + (1 - BETAS[0]) * (gradient - state[0])
    square = BETAS[1] * state[1] + (1 - BETAS[1]) * (gradient * gradient)
    return [value - size * (mean / (torch.sqrt(square) / root + EPSILON)), mean, square]


def _alike(one: fx.Node, two: fx.Node) -> bool:
    return bool(one.meta["val"].shape == two.meta["val"].shape and one.meta["val"].dtype == two.meta["val"].dtype)


def _clean(graph: fx.GraphModule) -> None:
    """Drop what has no effect, and check that nothing is random or changed in place.

    Raises:
        StepError: The operator that is.
    """
    aten = torch.ops.aten
    for node in graph.graph.nodes:
        if node.target == aten.copy.default and _alike(node, node.args[1]):
            node.replace_all_uses_with(node.args[1])
        copied = node.target == aten.clone.default and not node.kwargs  # of use only where it is a result of the step
        if copied or node.target in {aten.detach.default, aten.alias.default}:
            given = node.args[0].op == "placeholder"  # which is not a result
            node.replace_all_uses_with(node.args[0], lambda user, given=given: not (given and user.op == "output"))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - the class has no public name
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise StepError(
                    f"a step draws random numbers in dropout modules only, but here in {node.target}: train it eagerly"
                )
            if node.target._schema.is_mutable:  # noqa: SLF001 - the schema has no public name
                raise StepError(
                    f"a step changes no buffer but norms' statistics, but {node.target} does: train it eagerly"
                )
