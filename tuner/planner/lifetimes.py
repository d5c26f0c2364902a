"""When each tensor of a training step is alive: execution orders, requests, and merging in place.

NNTrainer (arXiv 2206.04688), section 4 and Algorithm 1. Every layer runs forward, compute-gradient and
compute-derivative at orders that are known before anything runs, and so every tensor's lifetime is known too. Unlike
the paper, the loss is a step of its own between the last forward and the first gradient, and a gradient lives until
its layer's derivative is computed, because that needs the weight as it was before the update.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto


@dataclass(frozen=True, slots=True)
class Tensor:
    """Bytes that one tensor needs, and when.

    Attributes:
        name: Unlike any other of the step.
        nbytes: Its size.
        first: The execution step that writes it first.
        last: The execution step that reads it last; it is alive in `first` to `last`, both included.
        kind: What it is for: ``input``, ``label``, ``output``, ``activation``, ``saved``, ``gradient``,
            ``derivative``, ``weight``, ``state`` or ``scratch``.
    """

    name: str
    nbytes: int
    first: int
    last: int
    kind: str


class Lifespan(Flag):
    """In which of its layer's orders a tensor is needed; unions are OR (section 4.1, table 2)."""

    FORWARD = auto()
    GRADIENT = auto()
    DERIVATIVE = auto()
    BACKWARD = GRADIENT | DERIVATIVE
    ITERATION = FORWARD | BACKWARD
    ALWAYS = auto()


class Mode(Enum):
    """How a tensor comes by its memory (section 4.1, table 3)."""

    PLACEHOLDER = "filled from outside; nothing may overwrite it"
    CREATE = "memory of its own"
    MODIFY_VIEW = "another tensor's memory, overwritten, where that one is no longer needed; else its own"
    READ_VIEW = "another tensor's memory, never changed"
    EXTEND = "the same tensor again, as an unrolled layer's weights are at every time step"


@dataclass(frozen=True, slots=True)
class Orders:
    """Execution orders of a chain of layers in topological order (Algorithm 1, with a step for the loss).

    Attributes:
        layers: How many there are, inputs not counted.
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
    """A tensor that layers ask for.

    Attributes:
        name: Unlike any other of the step.
        nbytes: Its size.
        orders: When it is needed; at least one.
        kind: As in `Tensor`.
        mode: How it comes by its memory.
        of: The tensor whose memory it may share; for views and extensions.
    """

    name: str
    nbytes: int
    orders: frozenset[int]
    kind: str
    mode: Mode = Mode.CREATE
    of: str = ""


def together(requests: Iterable[Request]) -> list[Request]:
    """Join requests of the same name, as producer and readers of a tensor make them: orders unite.

    The first one that is more than `Mode.CREATE` says how the tensor comes by its memory.
    """
    found: dict[str, Request] = {}
    for request in requests:
        known = found.get(request.name, request)
        how = request if known.mode is Mode.CREATE else known
        found[request.name] = Request(
            known.name, known.nbytes, known.orders | request.orders, known.kind, how.mode, how.of
        )
    return list(found.values())


def merged(requests: Sequence[Request]) -> tuple[list[Tensor], Mapping[str, str]]:
    """Merge views with what they look at (Algorithm 1, lines 11 to 20).

    Requests are taken by their first order. A modifying view shares memory if nothing needs the other tensor, or
    anything merged with it, after the view's first order; otherwise it gets its own. Reading views and extensions
    always share. The merged tensor needs the orders of all its parts.

    Args:
        requests: One a name; a view comes after what it looks at, where both begin in the same order.

    Returns:
        The tensors that need memory, and the tensor in which each request went.
    """
    by_name = {request.name: request for request in requests}
    orders: dict[str, frozenset[int]] = {}
    owner: dict[str, str] = {}
    for request in sorted(requests, key=lambda one: min(one.orders)):
        base = owner.get(request.of, "")
        shares = request.mode in {Mode.READ_VIEW, Mode.EXTEND} or (
            request.mode is Mode.MODIFY_VIEW
            and by_name[base].mode is not Mode.PLACEHOLDER
            and min(request.orders) >= max(orders[base])
        )
        owner[request.name] = base if shares else request.name
        orders[owner[request.name]] = orders.get(owner[request.name], frozenset()) | request.orders
    tensors = [
        Tensor(name, by_name[name].nbytes, min(needed), max(needed), by_name[name].kind)
        for name, needed in orders.items()
    ]
    return tensors, owner
