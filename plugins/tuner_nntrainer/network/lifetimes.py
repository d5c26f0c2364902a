"""When each tensor of a training step is alive: execution orders, requests, and merging in place.

NNTrainer (arXiv 2206.04688), section 4 and Algorithm 1. Every layer runs forward, compute-gradient and
compute-derivative at orders that are known before anything runs, so every tensor's lifetime is known too. Unlike in
the paper, the loss is a step of its own between the last forward and the first gradient, and a gradient lives until
its layer's derivative is computed, because that needs the weight before its update.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto

from tuner.planner.memory.placement import Tensor


class Lifespan(Flag):
    """The orders of its layer in which a tensor is needed; unions are OR (section 4.1, table 2)."""

    FORWARD = auto()
    GRADIENT = auto()
    DERIVATIVE = auto()
    BACKWARD = GRADIENT | DERIVATIVE
    ITERATION = FORWARD | BACKWARD
    ALWAYS = auto()


class Mode(Enum):
    """Where a tensor's memory is from (section 4.1, table 3)."""

    PLACEHOLDER = "filled from outside; nothing may overwrite it"
    CREATE = "memory of its own"
    MODIFY_VIEW = "another tensor's memory, overwritten, where that is no longer needed; else its own"
    READ_VIEW = "another tensor's memory, never changed"
    EXTEND = "the same tensor again, as an unrolled layer's weights are at every time step"


@dataclass(frozen=True, slots=True)
class Orders:
    """Execution orders of a chain of layers in topological order (Algorithm 1, with a step for the loss).

    Attributes:
        layers: Number of layers, inputs not counted.
    """

    layers: int

    @property
    def loss(self) -> int:
        """The step of the loss."""
        return self.layers

    @property
    def last(self) -> int:
        """The last step: the first layer's derivative, where its update is."""
        return 3 * self.layers

    def forward(self, layer: int) -> int:
        """Return the step of a layer's forward pass."""
        return layer

    def gradient(self, layer: int) -> int:
        """Return the step that computes the gradient of a layer's weights."""
        return self.last - 2 * layer - 1

    def derivative(self, layer: int) -> int:
        """Return the step that computes the derivative of a layer's input, and then updates the layer's weights."""
        return self.gradient(layer) + 1

    def of(self, layer: int, lifespan: Lifespan) -> frozenset[int]:
        """Return the orders in which a tensor of a layer is needed."""
        if Lifespan.ALWAYS in lifespan:
            return frozenset((0, self.last))
        each = {
            Lifespan.FORWARD: self.forward(layer),
            Lifespan.GRADIENT: self.gradient(layer),
            Lifespan.DERIVATIVE: self.derivative(layer),
        }
        return frozenset(order for part, order in each.items() if part in lifespan)


@dataclass(frozen=True, slots=True)
class Request:
    """A layer's need of a tensor.

    Attributes:
        name: Name of the tensor.
        nbytes: Size in bytes.
        orders: Execution steps that need it; at least one.
        kind: Purpose, as in `Tensor`.
        mode: Where its memory is from.
        of: Tensor whose memory it may share; for views and extensions.
    """

    name: str
    nbytes: int
    orders: frozenset[int]
    kind: str
    mode: Mode = Mode.CREATE
    of: str = ""


def together(requests: Iterable[Request]) -> list[Request]:
    """Join requests of the same name, as the producer and the readers of a tensor make them: orders unite.

    The first mode other than `Mode.CREATE` applies.
    """
    joined: dict[str, Request] = {}
    for request in requests:
        before = joined.get(request.name, request)
        sharing = request if before.mode is Mode.CREATE else before
        orders = before.orders | request.orders
        joined[request.name] = replace(before, orders=orders, mode=sharing.mode, of=sharing.of)
    return list(joined.values())


def merged(requests: Sequence[Request]) -> tuple[list[Tensor], Mapping[str, str]]:
    """Merge views with the tensors they view (Algorithm 1, lines 11 to 20).

    Requests are taken by their first order. A modifying view shares memory if nothing needs the other tensor, or
    anything merged with it, after the view's first order; otherwise it gets its own. Reading views and extensions
    always share. A merged tensor is alive in the orders of all its parts.

    Args:
        requests: Requests of distinct names; where both begin in the same order, a view comes after its tensor.

    Returns:
        The tensors that need memory, and the tensor that holds each request.
    """
    by_name = {request.name: request for request in requests}
    orders: dict[str, frozenset[int]] = {}
    owner: dict[str, str] = {}
    for request in sorted(requests, key=lambda request: min(request.orders)):
        base = owner.get(request.of, "")
        shares = request.mode in {Mode.READ_VIEW, Mode.EXTEND} or (
            request.mode is Mode.MODIFY_VIEW
            and by_name[base].mode is not Mode.PLACEHOLDER
            and min(request.orders) >= max(orders[base])
        )
        owner[request.name] = base if shares else request.name
        orders[owner[request.name]] = orders.get(owner[request.name], frozenset()) | request.orders
    tensors = [
        Tensor(name, by_name[name].nbytes, min(steps), max(steps), by_name[name].kind) for name, steps in orders.items()
    ]
    return tensors, owner
