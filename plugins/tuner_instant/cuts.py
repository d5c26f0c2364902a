"""Where an ONNX classifier may end: its cuts, which one value alone passes, and what each costs.

Shapes come from ONNX Runtime, which is given the network with a ``Shape`` node for each value: nothing else would know
the sizes of all operators. Field numbers are those of onnx.proto3 (ONNX 1.23).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tuner.arrays import Floats
from tuner.errors import BundleError, first_line
from tuner.ort import answer
from tuner.ort.protobuf import field, integer
from tuner.ort.session import open_session
from tuner.ridge.sums import MOST_FEATURES

#: Borders of ranges of the FLOPs before the last features, as shares: of each range one cut is offered.
RANGES = (0.3, 0.45, 0.65, 0.8, 0.95)
#: Fewer features tell too little.
FEWEST = 16
#: Orders of axes that put the channels first: of tokens [n, t, c], and of maps [n, h, w, c].
TOKENS, LAST = (0, 2, 1), (0, 3, 1, 2)
_INTS = 7  # of AttributeProto.AttributeType
#: Operators whose weights are multiplied with what passes.
LAYERS = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True)
class Cut:
    """A value that alone passes from the nodes before it to those after.

    Attributes:
        value: Its name.
        shape: Its shape, per sample.
        order: Order of its axes with the channels first, where it is pooled; empty where they are as they should be.
        features: Number of pooled features.
        flops: FLOPs of all before it, per sample; one multiply-accumulate counts two.
        parameters: Number of weights before it.
        peak_bytes: Bytes of these and of the values that are alive at once, of one sample.
    """

    value: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    features: int
    flops: int
    parameters: int
    peak_bytes: int

    def nodes(self, name: str) -> list[bytes]:
        """Return the nodes from the value to its features, of a name: means over all but the channels."""
        if len(self.shape) == 1:
            return [] if self.value == name else [answer.node("Identity", (self.value,), (name,))]
        turned, pooled = f"{name}.turned", f"{name}.pooled"
        first = [_transposed(self.value, turned, self.order)] if self.order else []
        return [
            *first,
            answer.node("GlobalAveragePool", (turned if self.order else self.value,), (pooled,)),
            answer.node("Flatten", (pooled,), (name,)),
        ]


@dataclass(frozen=True, slots=True)
class Step:
    """A node: its operator, the values that it reads and makes, and the sizes of the weights that it reads."""

    operator: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    weights: Mapping[str, int]


def cuts_of(steps: Sequence[Step], shapes: Mapping[str, tuple[int, ...]], last: str) -> tuple[Cut, ...]:
    """Return the cuts of a network, the last features at the end: of the others the widest in each of `RANGES`.

    The widest tell most: of a bottleneck, that is what it expands to, and the last value of that width is a rectified
    one (MobileNetV2, clothing: 82.0 % by 576 features instead of 78.3 by the 160 that follow, left out).

    Args:
        steps: Its nodes up to the last features, in the order they run.
        shapes: Shape of every value, of a batch of one.
        last: Name of the last features.
    """
    found = list(_all(steps, shapes, last))
    if not found or found[-1].value != last:
        raise BundleError("what enters its last layer are no features: one number each, of a sample")
    end, chosen = found[-1], list[Cut]()
    for low, high in pairwise(RANGES):
        inside = [one for one in found if low <= one.flops / max(1, end.flops) < high]
        chosen += [max(inside, key=lambda one: (one.features, one.flops))] if inside else []
    return *chosen, end


def _all(steps: Sequence[Step], shapes: Mapping[str, tuple[int, ...]], last: str) -> Iterator[Cut]:
    """Yield every cut whose value can be pooled, in order."""
    waiting = Counter(name for step in steps for name in step.reads)
    waiting[last] += 1
    alive, flops, parameters, most, counted = dict[str, int](), 0, 0, 0, set[str]()
    for step in steps:
        for name in step.makes:
            alive[name] = 4 * math.prod(shapes.get(name, (0,)))
        flops += _flops(step, shapes)
        parameters += sum(size for name, size in step.weights.items() if name not in counted)
        counted |= {*step.weights}
        most = max(most, sum(alive.values()))
        for name in step.reads:
            waiting[name] -= 1
            if not waiting[name]:
                alive.pop(name, None)
        for name in step.makes:
            if not waiting[name]:
                alive.pop(name, None)
        if len(alive) == 1:
            (value,) = alive
            shape = shapes.get(value, ())[1:]
            order = _order(shape)
            features = shape[order[1] - 1] if order else shape[0] if shape else 0
            if value == last or (len(shape) in {1, 2, 3} and FEWEST <= features <= MOST_FEATURES):
                yield Cut(value, shape, order, features, flops, parameters, 4 * parameters + most)


def _order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of a value's axes with the channels first; nothing where they are."""
    if len(shape) == 2:  # noqa: PLR2004 - tokens
        return TOKENS
    square = len(shape) == 3 and shape[0] == shape[1] != shape[2]  # noqa: PLR2004 - a map
    return LAST if square else ()


def _flops(step: Step, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the FLOPs of a node on one sample: of a layer, two for each weight at each place of its output."""
    size = math.prod(shapes.get(step.makes[0], ()))
    if step.operator not in LAYERS:
        return size
    weight = max(step.weights.values(), default=0)
    if not weight:  # two values, as in attention
        return 2 * size * (shapes.get(step.reads[0], (1,)) or (1,))[-1]
    shape = shapes.get(step.makes[0], (1,))
    channels = shape[1] if step.operator == "Conv" else shape[-1]
    return 2 * weight * size // max(1, channels)


def shape_nodes(steps: Sequence[Step]) -> bytes:
    """Return the message that adds the shape of every value that steps make to a model's outputs."""
    made = _made(steps)
    nodes = [answer.node("Shape", (name,), (shape,)) for name, shape in made.items()]
    return answer.appended(nodes, {}, dict.fromkeys(made.values(), "int64"))


def shapes_of(path: Path, steps: Sequence[Step], sample: Floats) -> dict[str, tuple[int, ...]]:
    """Return the shape of every value that steps make, of one sample.

    Args:
        path: The network with `shape_nodes`.
        steps: Its nodes.
        sample: float32 [1, ...].

    Raises:
        BundleError: The network cannot run it.
    """
    session, made = open_session(path, 1, fixed_shapes=True, as_written=True), _made(steps)
    try:
        found = session.run(list(made.values()), {session.get_inputs()[0].name: sample})
    except Exception as error:  # noqa: BLE001 - onnxruntime raises many kinds, all of its own making
        raise BundleError(f"it cannot run a sample of shape {list(sample.shape[1:])} ({first_line(error)})") from None
    return {name: tuple(map(int, one)) for name, one in zip(made, found, strict=True)}


def _made(steps: Sequence[Step]) -> dict[str, str]:
    """Return the name of the shape of every value that steps make, by the value's name."""
    return {name: f"shape.{at}" for at, name in enumerate(name for step in steps for name in step.makes)}


def _transposed(value: str, turned: str, order: tuple[int, ...]) -> bytes:
    perm = field(1, b"perm") + b"".join(integer(8, axis) for axis in order) + integer(20, _INTS)
    return answer.node("Transpose", (value,), (turned,)) + field(5, perm)
