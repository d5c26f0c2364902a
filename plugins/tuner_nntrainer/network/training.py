"""A training step of a network: the tensors that its layers request, and its FLOPs.

NNTrainer (arXiv 2206.04688), section 4.1: which layer needs which tensor when. The weights of a layer are updated in
the step of its derivative, right after their gradient.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tuner.errors import ModelError
from tuner.planner.memory.placement import Tensor
from tuner_nntrainer.network.layers import Addition, BatchNormalization, Input, MultiOut
from tuner_nntrainer.network.lifetimes import Lifespan, Mode, Orders, Request, merged, together
from tuner_nntrainer.network.network import Network, Node, OptimiserName
from tuner_nntrainer.network.rules import VALUE_BYTES, Sharing, values

#: Tensors that each optimiser keeps of every trained weight.
STATE: Mapping[OptimiserName, tuple[str, ...]] = {"sgd": (), "adam": ("m", "v")}
MODES: Mapping[Sharing, Mode] = {"none": Mode.CREATE, "in-place": Mode.MODIFY_VIEW, "view": Mode.READ_VIEW}


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One training step, planned.

    Attributes:
        tensors: Merged tensors; each needs memory of its own while it is alive.
        steps: Names of the execution steps.
        flops: FLOPs of the whole batch, forward and backward; one multiply-accumulate counts two, all else nothing.
    """

    tensors: tuple[Tensor, ...]
    steps: tuple[str, ...]
    flops: int


@dataclass(frozen=True, slots=True)
class _Backward:
    """What a layer's backward pass computes.

    Attributes:
        trains: Whether it computes the gradient of the layer's weights.
        passes: Whether it computes the derivative of any of the layer's inputs.
    """

    trains: bool
    passes: bool

    def needs(self, lifespan: Lifespan) -> Lifespan:
        """Return when a tensor inside the layer is needed; a frozen layer does all backward work in one order."""
        if self.passes and not self.trains and Lifespan.GRADIENT in lifespan:
            lifespan |= Lifespan.DERIVATIVE
        return self.rereads(lifespan)

    def rereads(self, lifespan: Lifespan) -> Lifespan:
        """Return when an input or output is needed: not for the gradient of frozen weights."""
        computed = Lifespan.FORWARD
        if self.trains:
            computed |= Lifespan.GRADIENT
        if self.passes:
            computed |= Lifespan.DERIVATIVE
        return lifespan & computed


def training_step(network: Network, micro_batches: int = 1) -> TrainingStep:
    """Return the tensors, execution steps and FLOPs of one training step.

    Args:
        network: Network to train.
        micro_batches: Number of equal parts of the batch; the steps are those of one part. The gradients are summed
            over the parts, and the weights updated in the last one, so the result is the same.

    Raises:
        ModelError: No weight of the network trains, or the batch cannot be divided so.
    """
    if network.batch_size % micro_batches:
        raise ModelError(
            f"the batch must be a multiple of the number of micro-batches, {micro_batches}, got {network.batch_size}"
        )
    if micro_batches > 1 and (name := batch_dependent(network)) is not None:
        raise ModelError(f"{name!r} normalises over the whole batch: freeze it, or leave micro-batches out")
    backward = _backward(network.nodes)
    if not any(work.trains for work in backward):
        raise ModelError("no weight of this model trains: add a layer with weights, or set trainable = true")
    tensors, _ = merged(together(requests(network, micro_batches)))
    computing = [node.name for node in network.nodes if not isinstance(node.operation, Input)]
    steps = (
        *(f"forward of {name}" for name in computing),
        "loss",
        *chain.from_iterable((f"gradient of {name}", f"derivative of {name}") for name in reversed(computing)),
    )
    macs = sum(
        node.traits.macs * (1 + work.trains + work.passes) for node, work in zip(network.nodes, backward, strict=True)
    )
    return TrainingStep(tuple(tensors), steps, 2 * network.batch_size * macs)


def batch_dependent(network: Network) -> str | None:
    """Return the first layer whose result for a sample depends on the rest of the batch; None where there is none."""
    return next(
        (node.name for node in network.nodes if isinstance(node.operation, BatchNormalization) and node.trainable), None
    )


def requests(network: Network, micro_batches: int = 1) -> Iterator[Request]:
    """Yield the requests of all layers; several may request one tensor (see `together`)."""
    network = replace(network, batch_size=network.batch_size // micro_batches)
    nodes, batch = network.nodes, network.batch_size
    orders = Orders(sum(not isinstance(node.operation, Input) for node in nodes))
    backward = _backward(nodes)
    order = 0
    for at, node in enumerate(nodes):
        if isinstance(node.operation, Input):
            yield Request(_out(node), _bytes(node, batch), frozenset((0,)), "input", Mode.PLACEHOLDER)
            continue
        yield from _forward(network, at, backward[at], orders, order)
        yield from _lasting(node, STATE[network.optimiser] if backward[at].trains else (), orders)
        if backward[at].trains:
            yield from _gradients(node, orders, order, micro_batches)
        if backward[at].trains or backward[at].passes:
            yield from _derivatives(network, at, backward, orders, order)
        order += 1
    last, at_loss = nodes[-1], frozenset((orders.loss,))
    yield Request(_out(last), _bytes(last, batch), at_loss, "output")
    yield Request("label", _bytes(last, batch), at_loss, "label")
    yield Request(_derivative(last), _bytes(last, batch), at_loss, "derivative")


def _forward(network: Network, at: int, work: _Backward, orders: Orders, order: int) -> Iterator[Request]:
    """Yield a layer's inputs, outputs and inner tensors."""
    node, batch = network.nodes[at], network.batch_size
    read = orders.of(order, Lifespan.FORWARD | work.rereads(node.traits.reads_input))
    for source, output in node.inputs:
        producer = network.nodes[source]
        yield Request(_out(producer, output), _bytes(producer, batch), read, "activation")
    kind = "output" if at == len(network.nodes) - 1 else "activation"
    wrote = orders.of(order, Lifespan.FORWARD | work.rereads(node.traits.reads_output))
    mode = MODES[node.traits.sharing]
    source, output = node.inputs[0]
    of = _out(network.nodes[source], output) if mode is not Mode.CREATE else ""
    for number in range(node.outputs):
        yield Request(_out(node, number), _bytes(node, batch), wrote, kind, mode, of)
    for tensor in node.traits.inner:
        needed = orders.of(order, work.needs(tensor.lifespan))
        if needed - {order} or (tensor.kind == "scratch" and needed):
            nbytes = tensor.sample_bytes * batch + tensor.fixed_bytes
            yield Request(f"{node.name}.{tensor.name}", nbytes, needed, tensor.kind)


def _lasting(node: Node, state: tuple[str, ...], orders: Orders) -> Iterator[Request]:
    """Yield the tensors that are always there: a layer's weights, the optimiser's state of each, and statistics."""
    always = frozenset((0, orders.last))
    for name, count in node.traits.weights.items():
        yield Request(f"{node.name}.{name}", count * VALUE_BYTES, always, "weight")
        for moment in state:
            yield Request(f"{node.name}.{name}.{moment}", count * VALUE_BYTES, always, "state")
    for name, count in node.traits.state.items():
        yield Request(f"{node.name}.{name}", count * VALUE_BYTES, always, "state")


def _gradients(node: Node, orders: Orders, order: int, micro_batches: int) -> Iterator[Request]:
    """Yield the gradients of a layer's weights; micro-batches add them to a sum that is always there."""
    for name, count in node.traits.weights.items():
        full, nbytes = f"d {node.name}.{name}", count * VALUE_BYTES
        if micro_batches > 1:
            yield Request(f"{full}.sum", nbytes, frozenset((0, orders.last)), "gradient")
        alive = Lifespan.BACKWARD if micro_batches == 1 else Lifespan.GRADIENT
        yield Request(full, nbytes, orders.of(order, alive), "gradient")


def _derivatives(network: Network, at: int, backward: list[_Backward], orders: Orders, order: int) -> Iterator[Request]:
    """Yield the derivatives of a layer's outputs, and of the inputs below which something trains."""
    node, batch, work = network.nodes[at], network.batch_size, backward[at]
    read = orders.of(order, work.rereads(Lifespan.BACKWARD))
    for number in range(node.outputs):
        yield Request(_derivative(node, number), _bytes(node, batch), read, "derivative")
    mode = MODES[node.traits.sharing]
    if isinstance(node.operation, Addition):
        mode = Mode.READ_VIEW
    elif isinstance(node.operation, MultiOut):
        mode = Mode.MODIFY_VIEW  # the readers' derivatives are summed in the first one's memory
    of = _derivative(node) if mode is not Mode.CREATE else ""
    wrote = orders.of(order, Lifespan.DERIVATIVE)
    for source, output in node.inputs:
        producer = network.nodes[source]
        if backward[source].trains or backward[source].passes:
            yield Request(_derivative(producer, output), _bytes(producer, batch), wrote, "derivative", mode, of)


def _backward(nodes: Sequence[Node]) -> list[_Backward]:
    """Return what the backward pass of each node computes."""
    backward: list[_Backward] = []
    for node in nodes:
        passes = any(backward[source].trains or backward[source].passes for source, _ in node.inputs)
        backward.append(_Backward(node.trainable and bool(node.traits.weights), passes))
    return backward


def _bytes(node: Node, batch: int) -> int:
    return values(node.traits.shape) * VALUE_BYTES * batch


def _out(node: Node, output: int = 0) -> str:
    return f"{node.name}.out{output}" if node.outputs > 1 else f"{node.name}.out"


def _derivative(node: Node, output: int = 0) -> str:
    return f"d {_out(node, output)}"
