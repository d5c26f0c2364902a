"""A traced training step, and how a function of tensors becomes one's graph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from tuner.backends.torch.model.graph.layout import spatial
from tuner.errors import UnsupportedError, first_line
from tuner.ort.layout import Port
from tuner.plan.parts import RecipePlan

#: The way out where no step can be traced.
EAGERLY = "only PyTorch's eager loop (--backend torch) can train it"


class StepError(UnsupportedError):
    """A training step cannot be traced; the eager loop can still run it."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A traced training step.

    Attributes:
        graph: Graph at the level of ATen, functional, not decomposed; takes tensors in the order of `inputs`, returns a
            tuple in the order of `outputs`. Traced with maps and convolution weights channels last, as the eager loop
            has them.
        inputs: Inputs, in order.
        outputs: Outputs, in order; the loss, the real samples' mean, is the first.
        updates: Input that an output replaces in the next step, by the output's name.
        recipe: What its updates follow; None where it has none, or adds gradients to sums.
    """

    graph: fx.GraphModule
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    updates: Mapping[str, str]
    recipe: RecipePlan | None = None


def port_of(name: str, kind: str, value: torch.Tensor) -> Port:
    """Return the port of a tensor."""
    return Port(name, kind, tuple(value.shape), str(value.dtype).removeprefix("torch."))


@contextmanager
def refused() -> Iterator[None]:
    """Turn what a tail that cannot be traced raises into a StepError."""
    try:
        yield
    except Exception as error:
        raise StepError(f"this tail cannot be traced ({first_line(error)}): {EAGERLY}") from error


def graph_of(function: Callable[..., tuple[torch.Tensor, ...]], inputs: Sequence[Port]) -> fx.GraphModule:
    """Return a function of tensors as a pure graph of ATen operators. Nothing is computed.

    Raises:
        StepError: It cannot be one.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):  # constants are as they are
        example = [spatial(torch.empty(port.shape, dtype=getattr(torch, port.dtype))) for port in inputs]
    with refused():
        norms = {torch.ops.aten.native_batch_norm.default: _batch_norm}
        graph = make_fx(dispatch_functionalize(function), norms, tracing_mode="fake")(*example)
    _clean(graph)
    return graph


def _batch_norm(*arguments: Any) -> Any:
    """Let running statistics move where functionalisation sees it: the operator's schema hides that it changes them."""
    _, _, _, mean, variance, training, *_ = arguments
    if not training or mean is None or variance is None:
        return NotImplemented
    functional_norm = torch.ops.aten._native_batch_norm_legit_functional.default  # noqa: SLF001 - torch names it so
    normalised, batch_mean, scale, *moved = functional_norm(*arguments)
    mean.copy_(moved[0])
    variance.copy_(moved[1])
    return normalised, batch_mean, scale


def _clean(graph: fx.GraphModule) -> None:
    """Drop what has no effect, and check that nothing is random or changed in place."""
    aten = torch.ops.aten
    for node in graph.graph.nodes:
        if node.target == aten._native_batch_norm_legit_no_training.default:  # noqa: SLF001 - torch names it so
            node.target, node.args = aten.native_batch_norm.default, (*node.args[:5], False, *node.args[5:])
        if node.target == aten.copy.default and _is_alike(node, node.args[1]):
            node.replace_all_uses_with(node.args[1])
        is_copy = node.target == aten.clone.default and not node.kwargs  # of use only where it is a result of the step
        if is_copy or node.target in {aten.detach.default, aten.alias.default}:
            is_input = node.args[0].op == "placeholder"  # which is not a result
            node.replace_all_uses_with(
                node.args[0], lambda user, is_input=is_input: not (is_input and user.op == "output")
            )
    graph.graph.eliminate_dead_code()
    graph.recompile()
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - the class has no public name
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise StepError(
                    f"a step may draw random numbers for dropouts only, but this one does in {node.target}: {EAGERLY}"
                )
            if node.target._schema.is_mutable:  # noqa: SLF001 - the schema has no public name
                raise StepError(
                    f"a step may change no buffers but the statistics of norms, but {node.target} does: {EAGERLY}"
                )


def _is_alike(node: fx.Node, other: fx.Node) -> bool:
    ours, theirs = node.meta["val"], other.meta["val"]
    return bool(ours.shape == theirs.shape and ours.dtype == theirs.dtype)
