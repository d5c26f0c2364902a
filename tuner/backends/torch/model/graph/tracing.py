"""A model as a graph, in three steps: torch.fx, torch.fx with the modules that refuse as leaves, torch.export."""

from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from tuner.backends.torch.model.graph.exported import exported
from tuner.backends.torch.model.graph.places import place_of_model
from tuner.errors import first_line

#: A leaf with more of the model's weights than this is no block, nor a part of one.
MOST_OF_A_MODEL = 0.5


class Tracer(fx.Tracer):
    """Traces down to torch's own modules, and to any module without parameters or children.

    Args:
        leaves: Classes of modules that are not traced into either.

    Attributes:
        within: Names and modules whose calls are traced now, from the outermost to the innermost.
    """

    def __init__(self, leaves: frozenset[type[nn.Module]] = frozenset()) -> None:
        super().__init__()
        self._leaves = leaves
        self.within: list[tuple[str, nn.Module]] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a call of the module stays one node."""
        if type(m) in self._leaves or super().is_leaf_module(m, module_qualified_name):
            return True
        return (
            next(m.parameters(), None) is None and next(m.children(), None) is None and not isinstance(m, nn.Sequential)
        )

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Trace a call; `within` ends with the module that raised, where one did."""
        self.within.append((self.path_of_module(m), m))
        result = super().call_module(m, forward, args, kwargs)
        self.within.pop()
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A traced model: its graph, with the shape of every value and the given model's weights; and how, for people."""

    module: fx.GraphModule
    by: str


class RefusalError(ValueError):
    """A model cannot be traced; the message has the module and the line that refused."""


def traced(model: nn.Module, sample: torch.Tensor) -> Traced:
    """Trace a model of one tensor in and one out; `sample` is float32 [1, ...], as the model takes it.

    Where torch.fx cannot trace a module's own code, the modules of its class become leaves, so that like things are cut
    alike. A leaf with most of the model's weights leaves little to cut: torch.export, which traces the operators below
    it, is asked then, as it is where the outermost module refuses.

    Raises:
        RefusalError: None of the steps can trace it.
    """
    leaves, refusal = frozenset[type[nn.Module]](), ""
    while True:
        tracer = Tracer(leaves)
        refresh(model)
        try:
            module = _checked(fx.GraphModule(model, tracer.trace(model)), sample)
            break
        except Exception as error:  # noqa: BLE001 - a user's forward may raise anything when it is traced
            refusal = refusal or _refusal(error, tracer)
            kind = type(tracer.within[-1][1]) if tracer.within else None
            if kind is None or kind in leaves:
                module = None
                break
            leaves |= {kind}
    refresh(model)  # of the placeholders that it may have kept
    if module is not None and _largest_share(model, leaves) <= MOST_OF_A_MODEL:
        names = ", ".join(sorted(kind.__name__ for kind in leaves))
        return Traced(module, f"torch.fx, with {names} as leaves" if leaves else "torch.fx")
    try:
        return Traced(_checked(exported(model, sample), sample), "torch.export")
    except Exception as error:
        raise RefusalError(f"torch.fx: {refusal}; torch.export: {first_line(error)}") from error


def refresh(model: nn.Module) -> None:
    """Put a model in evaluation mode, without what its modules keep of their weights there: training mode drops it."""
    model.train()
    model.eval()


def _checked(module: fx.GraphModule, sample: torch.Tensor) -> fx.GraphModule:
    """Give every node its shape, and drop what has no effect."""
    with redirect_stderr(StringIO()):  # it prints the traceback of what it raises
        ShapeProp(module).propagate(sample)
    module.graph.eliminate_dead_code()
    module.recompile()
    nodes = list(module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and node.users]
    if len(inputs) != 1 or not isinstance(nodes[-1].args[0], fx.Node):
        raise RefusalError("it has more than one input or output")
    return module


def _largest_share(model: nn.Module, leaves: frozenset[type[nn.Module]]) -> float:
    """Return the largest share of the model's weights that one leaf holds."""

    def weights(module: nn.Module) -> int:
        return sum(value.numel() for value in module.parameters())

    held = (weights(module) for module in model.modules() if type(module) in leaves)
    return max(held, default=0) / max(1, weights(model))


def _refusal(error: Exception, tracer: Tracer) -> str:
    """Return what could not be traced: the error, its module and the line of its code."""
    name, module = tracer.within[-1] if tracer.within else ("", tracer.root)
    place = place_of_model(error)
    line = f", {place}" if place else ""
    return f"{first_line(error)} ({name or 'the model'}, a {type(module).__name__}{line})"
